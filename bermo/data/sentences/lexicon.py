"""The words of the generated sentences, with every form that the grammar needs.

A noun is written `apple`, or `child/children` where its plural follows no rule; a verb `bake`, or
`eat/ate` where its past follows no rule. Nouns come in kinds, and a verb says which kinds it takes
(`person > food: bake`), so that sentences make sense. Two properties keep the labels exact: no noun
has equal singular and plural (no sheep), and no verb equal base and past (no put, no read).
"""

from collections.abc import Mapping
from typing import NamedTuple


class Noun(NamedTuple):
    """A countable noun."""

    singular: str
    plural: str


class Verb(NamedTuple):
    """A verb in the three forms that carry tense: they bake, she bakes, she baked."""

    base: str
    third: str
    past: str


class Frame(NamedTuple):
    """A verb with the kinds of noun that it takes as subject and object (no objects: intransitive)."""

    verb: Verb
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


_NOUNS = {
    "person": """
        actor artist aunt baker banker barber biologist boy brother captain carpenter chemist
        child/children cleaner clerk clown composer conductor cousin dancer daughter dentist
        detective director doctor editor engineer explorer farmer father firefighter
        fisherman/fishermen gardener geologist girl goldsmith grandfather grandmother guest guitarist
        hiker historian inventor janitor jeweler journalist juggler king lawyer librarian lifeguard
        magician man/men manager mayor mechanic merchant miner mother musician neighbor nephew niece
        novelist nurse officer painter passenger pharmacist photographer physicist pianist pilot
        plumber poet potter prince princess professor queen ranger reporter roommate sailor scholar
        scientist sculptor secretary senator shepherd singer sister soldier son student surgeon tailor
        teacher tourist translator traveler trumpeter uncle violinist waiter weaver witness
        woman/women writer zoologist""",
    "animal": """
        badger bear beaver bird camel cat cow crab crow dog donkey dove duck eagle elephant falcon
        ferret fox frog giraffe goat goose/geese hamster hawk hedgehog hen horse kangaroo kitten lamb
        leopard lion lizard llama monkey mouse/mice mule otter owl ox/oxen panda parrot peacock pelican
        penguin pig pigeon pony puppy rabbit raccoon rat raven robin rooster seagull sparrow squirrel
        swan tiger toad turkey turtle walrus weasel wolf/wolves zebra""",
    "thing": """
        backpack balloon barrel basket bell blanket bottle bowl box bracelet broom bucket button
        calculator camera candle chain clock coin comb compass computer crown crystal cup diamond doll
        drum feather flag flute fork guitar hammer helmet hook hourglass jar kettle key keyboard kite
        knife/knives ladder lamp lantern magnet marble medal microscope mirror mug nail necklace needle
        paddle painting pan parcel pearl pen pencil piano pillow pipe plate pot puzzle radio ribbon
        ring rope ruler saucer shovel sponge spoon statue suitcase telephone telescope tent thermometer
        ticket toothbrush torch towel toy tray trophy trumpet umbrella vase violin wallet wheel""",
    "food": """
        apple apricot bagel banana berry biscuit burger cake carrot cherry cookie cucumber cupcake
        doughnut dumpling egg fig grape hamburger lemon mango meal melon muffin mushroom nut olive
        omelet onion orange pancake peach peanut pear pepper pickle pie pizza plum potato/potatoes
        pretzel pudding pumpkin radish salad sandwich sausage snack strawberry tart tomato/tomatoes
        turnip waffle walnut""",
    "text": """
        article ballad book brochure card catalog chapter contract diary dictionary document essay
        fable invitation journal legend letter magazine manual manuscript map memoir message newspaper
        note notebook novel pamphlet poem postcard recipe review script song sonnet speech story
        textbook""",
    "place": """
        airport attic bakery bank barn cabin castle cathedral cave cellar church cinema city clinic
        college cottage courtyard factory farm field forest gallery garage garden greenhouse gym
        hallway harbor hospital hotel house kitchen laboratory library lobby market meadow monastery
        museum office orchard palace park playground restaurant school stadium station studio tavern
        temple theater town valley village vineyard warehouse workshop zoo""",
    "landmark": """
        beach bridge canal cliff fence fountain gate hill island lake lighthouse mill monument mountain
        pier pond river road stable street tower trail wall waterfall windmill""",
    "vehicle": """
        airplane ambulance bicycle boat bus canoe car carriage cart ferry helicopter jeep motorcycle
        raft rocket sailboat scooter ship sled submarine taxi tractor train tram truck van wagon
        yacht""",
    "garment": """
        apron belt blouse bonnet boot cap cape cloak coat costume dress glove gown hat jacket jersey
        mitten raincoat robe sandal scarf/scarves shawl shirt shoe skirt sock sweater tunic vest""",
    "plant": """
        bush daffodil daisy fern flower hedge herb lily maple oak orchid palm pine poppy rose sapling
        seedling shrub sunflower thistle tree tulip vine violet willow""",
    "furniture": """
        armchair bed bench bookcase bookshelf/bookshelves cabinet carpet chair couch counter cradle
        crib cupboard desk drawer dresser hammock mattress rug shelf/shelves sofa stool table
        wardrobe""",
}

_TRANSITIVE = """
person > person: admire advise annoy amuse applaud assist comfort congratulate convince encourage
person > person: entertain forgive/forgave greet guide help hire hug/hugged impress instruct
person > person: interrupt interview invite meet/met praise surprise teach/taught thank trust warn
person > thing garment furniture vehicle: borrow buy/bought damage examine fix inspect lose/lost
person > thing garment furniture vehicle: measure need order own rent repair replace sell/sold
person > thing garment furniture: clean collect hide/hid polish store wash weigh
person > thing food text garment: bring/brought carry deliver drop/dropped fetch grab/grabbed
person > thing food text garment: lift pack throw/threw unpack wrap/wrapped choose/chose keep/kept
person > food: bake boil chop/chopped cook devour eat/ate fry grill peel prepare roast serve slice
person > food: swallow taste
animal > food: chew devour eat/ate sniff swallow
person > text: compose copy edit finish illustrate memorize publish quote recite revise sign
person > text: study summarize translate write/wrote
person > place landmark: approach explore leave/left reach visit pass
person > place: enter renovate
person > vehicle: board charter push steer tow
person > animal: adopt feed/fed groom rescue tame stroke
animal > animal person: bite/bit chase follow frighten nudge startle scare
person > garment: embroider fold iron knit/knitted mend sew stitch wear/wore
person > plant: grow/grew prune trim/trimmed uproot water
person > furniture: assemble build/built decorate dust move varnish
person > person animal thing food text place landmark vehicle garment plant furniture: describe
person > person animal thing food text place landmark vehicle garment plant furniture: draw/drew
person > person animal thing food text place landmark vehicle garment plant furniture: mention
person > person animal place landmark vehicle plant: photograph recognize sketch remember
person animal > person animal thing food plant garment: discover find/found ignore like love
person animal > person animal thing food plant vehicle: see/saw notice watch
"""

_INTRANSITIVE = """
person: arrive celebrate complain cough cry dance frown giggle grin/grinned hesitate hum/hummed
person: jog/jogged kneel/knelt laugh nod/nodded shout sigh sing/sang smile sneeze stumble travel
person: whisper whistle work
person animal: fall/fell jump pause relax rest run/ran shiver sit/sat sleep/slept stand/stood
person animal: stretch swim/swam tremble wait wander yawn
"""

_CLAUSAL = """
person: admit/admitted announce assume believe claim explain hear/heard insist know/knew realize
person: say/said suspect think/thought understand/understood
"""

_ADJECTIVES = {
    "person": """
        brave busy calm careful cheerful clever curious elderly elegant energetic famous friendly
        gentle graceful happy humble hungry jolly kind lonely loyal modest nervous old patient polite
        proud quiet shy sleepy strong tall tired wise witty young""",
    "animal": """
        black brown curious fluffy gentle gray hungry large lazy lively noisy old playful quick sleepy
        small spotted striped thin timid white wild young""",
    "food": """
        burnt cold delicious fresh frozen huge juicy large ripe salty small soft sour spicy sweet tasty
        tiny warm""",
    "text": """
        amusing boring clear detailed dull famous fascinating funny important long mysterious old
        popular secret serious short strange unusual""",
    "place": """
        ancient beautiful busy crowded dark empty enormous famous historic large lovely modern old
        peaceful quiet remote small""",
    "thing": """
        antique beautiful big black blue bright broken brown cheap dusty elegant expensive golden
        green heavy large light lovely new old plain pretty purple red shiny silver simple small strange
        tiny ugly white wooden yellow""",
    "plant": """
        beautiful bright colorful delicate fragrant green large lovely old pretty rare small tall tiny
        tropical""",
}

_OTHERS = {
    "manner": """
        bravely calmly carefully cautiously cheerfully clumsily eagerly gently gladly happily nervously
        patiently politely proudly quickly quietly reluctantly secretly silently slowly suddenly""",
    "comment": "apparently evidently fortunately luckily obviously sadly surprisingly",
    "female": """
        Alice Amira Anna Beatrice Carla Clara Diana Elena Emma Fatima Grace Hannah Helen Ingrid Irene
        Julia Karen Laura Leila Linda Lucy Maria Martha Mei Mia Nadia Nora Olivia Paula Priya Rachel
        Sarah Sofia Susan Tara Teresa Valerie Wanda Yuki Zoe""",
    "male": """
        Adam Ahmed Albert Arthur Ben Boris Carlos Charles Daniel David Edward Eric Felix Frank George
        Hassan Henry Hiroshi Hugo Ivan Jack James Jonas Karl Kevin Leo Liam Marco Martin Nathan Oliver
        Omar Oscar Paul Peter Rahul Robert Samuel Simon Thomas Victor Walter""",
    # "the" is repeated so that about half of all noun phrases show no number on their determiner.
    "singular": "the the the the my our your a a a a this that another one",
    "plural": "the the the the my our your some some some these those many several two",
}
OTHERS: Mapping[str, tuple[str, ...]] = {name: tuple(words.split()) for name, words in _OTHERS.items()}
SUBORDINATORS = ("because", "although", "though", "since")


def _forms(word: str) -> tuple[str, str | None]:
    base, _, irregular = word.partition("/")
    return base, irregular or None


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _with_ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + "ed"


def _noun(word: str) -> Noun:
    singular, plural = _forms(word)
    return Noun(singular, plural or _with_s(singular))


def _verb(word: str) -> Verb:
    base, past = _forms(word)
    return Verb(base, _with_s(base), past or _with_ed(base))


def _frames(text: str) -> tuple[Frame, ...]:
    frames = []
    for line in text.strip().splitlines():
        kinds, words = line.split(":")
        subjects, _, objects = kinds.partition(">")
        for word in words.split():
            frames.append(Frame(_verb(word), tuple(subjects.split()), tuple(objects.split())))
    return tuple(frames)


NOUNS: Mapping[str, tuple[Noun, ...]] = {
    kind: tuple(_noun(word) for word in words.split()) for kind, words in _NOUNS.items()
}
TRANSITIVE = _frames(_TRANSITIVE)
INTRANSITIVE = _frames(_INTRANSITIVE)
CLAUSAL = _frames(_CLAUSAL)
_SAME_ADJECTIVES = {
    "landmark": "place",
    "vehicle": "thing",
    "garment": "thing",
    "furniture": "thing",
}
ADJECTIVES: Mapping[str, tuple[str, ...]] = {
    kind: tuple(_ADJECTIVES[_SAME_ADJECTIVES.get(kind, kind)].split()) for kind in NOUNS
}
