"""Files and a card -> a repository of models on the hub, in one commit.

    push("runs/mine", "me/film-reviews", PushSpec()) -> Pushed

The hub is asked by its own library, with the token that it keeps (`hf auth login`) or HF_TOKEN has. Nothing
is downloaded. Files of the same name are replaced, others that are there stay.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from bermo.encoders.hub import can_ask
from bermo.errors import BermoError
from bermo.runs.model_files import find_model
from bermo.ship.push.card import card_of
from bermo.ship.push.files import CARD, files_of
from bermo.ship.push.spec import PushSpec, check_owner

LOG_IN = "Log in with: hf auth login, or set HF_TOKEN to a token that may write"
AGAIN = "The same command sends what is missing."
TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__mro__[1]
"""What the hub's HTTP client raises where there is no answer, whichever client it is."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What goes to the hub: the files by their names there, and the card, which is one of them."""

    name: str
    files: Mapping[str, Path]
    card: str
    url: str | None = None
    """Where it is; None where nothing was sent."""


def prepare(path: str | Path, name: str, spec: PushSpec) -> Pushed:
    """Gather and check all that would be sent, without any network."""
    check_name(name)
    files = files_of(path)
    return Pushed(name=name, files=files, card=card_of(path, find_model(path).folder, name, spec.bench))


def push(path: str | Path, name: str, spec: PushSpec) -> Pushed:
    """Send the model of a folder to the hub as `name`; only its owner may see it, unless it is public."""
    made = prepare(path, name, spec)
    if spec.dry_run:
        return made
    token = _token()
    _check_network()
    with _as_sentences(name):
        url = _send(HfApi(token=token), made, is_public=spec.public)
    return Pushed(name=name, files=made.files, card=made.card, url=url)


def check_name(name: str) -> None:
    """Refuse what is no name of a repository."""
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        said = " ".join(str(error).split())
        raise BermoError(f'"{name}" is no name of a model on the hub: {said}') from None
    check_owner(name)


def _token() -> str:
    token = get_token()
    if token is None:
        raise BermoError(f"There is no token of the model hub on this machine. {LOG_IN}.")
    return token


def _check_network() -> None:
    if constants.HF_HUB_OFFLINE:
        raise BermoError("HF_HUB_OFFLINE is set, so nothing is sent. Unset it, or see --dry-run.")
    if not can_ask():
        raise BermoError(
            f"The model hub ({constants.ENDPOINT}) cannot be reached, and nothing was sent. Is there a"
            " network? --dry-run needs none."
        )


def _send(api: HfApi, made: Pushed, is_public: bool) -> str:
    api.create_repo(made.name, private=not is_public, exist_ok=True)
    if not is_public and not api.repo_info(made.name).private:
        raise BermoError(
            f"{made.name} is there already and everybody may see it. Pass --public if that is meant, or give"
            " another name. Nothing was sent."
        )
    files: dict[str, Path | bytes] = {**made.files, CARD: made.card.encode()}
    added = [CommitOperationAdd(name, data) for name, data in files.items()]
    message = f"Model shipped by bermo {version('bermo')}"
    return str(api.create_commit(made.name, added, commit_message=message).repo_url)


@contextmanager
def _as_sentences(name: str) -> Iterator[None]:
    """Say what the hub or the network refused, without a traceback."""
    try:
        yield
    except BermoError:
        raise
    except (TRANSPORT_ERROR, OSError, RuntimeError, ValueError) as error:
        status = _status(error)
        if status == 401:
            raise BermoError(f"The hub refused the token: it is wrong or too old. {LOG_IN}.") from error
        if status in (403, 404):
            raise BermoError(
                f"The hub does not let this token write to {name}. Is the owner right, and may the token"
                " write?"
            ) from error
        said = _said(error)
        if status is None:
            raise BermoError(f"The connection to the hub broke ({said}). {AGAIN}") from error
        raise BermoError(f"The hub answered {status}: {said}. {AGAIN}") from error


def _said(error: BaseException) -> str:
    """Return the words of the error that was first, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:200] or type(error).__name__


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error, or None where there was no answer."""
    while error is not None:
        if isinstance(error, HfHubHTTPError):
            return int(error.response.status_code)
        error = error.__cause__
    return None
