"""bermo serve in one process: what it answers, and a status and a sentence for every wrong request."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import bermo
from bermo.encoders.sentence import SentenceSettings
from bermo.models.sentence import BermoForSentenceEmbedding
from bermo.ship.runtimes.embed import SentenceEncoder
from bermo.ship.serve.app import Server
from bermo.ship.serve.model import ServedModel
from bermo.ship.serve.spec import ServeSpec
from tests.ship.folders import make_model, save
from tests.tiny import make_config, make_tokenizer, save_backbone

SPEC = ServeSpec(batch_size=4, queue=8, max_texts=8, max_characters=100, max_bytes=2000, device="cpu")
TEXTS = ["a good film", "", "the bad cats saw a dog .", "a dog"]


def make_encoder(folder: Path) -> Path:
    settings = SentenceSettings(prompts={"query": "the "})
    BermoForSentenceEmbedding.from_settings(make_config("bert"), settings).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    for kind in ("classification", "tagging", "span"):
        save(make_model(kind=kind), root / kind, kind)
    make_encoder(root / "encoder")
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Server:
    names = ("classification", "tagging", "span", "encoder")
    return Server([ServedModel(root / name, SPEC) for name in names], SPEC)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[TestClient]:
    with TestClient(server.app(), raise_server_exceptions=False) as client:
        yield client


def test_answers_are_those_of_predict_in_the_order_of_the_texts(client: TestClient, root: Path) -> None:
    asked = {"texts": TEXTS, "model": "classification"}
    given = client.post("/predict", json=asked)
    assert given.status_code == 200
    assert given.json()["model"] == "classification"
    answers = given.json()["answers"]
    assert answers[1] == {"label": None, "probability": None}
    filled = [text for text in TEXTS if text]
    expected = bermo.predict(root / "classification", filled)
    assert [answer["probability"] for answer in answers if answer["label"]] == pytest.approx(
        [answer.probability for answer in expected]
    )
    whole = client.post("/predict", json=asked | {"probabilities": True}).json()["answers"]
    assert sum(whole[0]["probabilities"].values()) == pytest.approx(1)
    assert "probabilities" not in answers[0]


def test_vectors_are_those_of_encode_with_prompt_and_dimension(client: TestClient, root: Path) -> None:
    encoder = SentenceEncoder(root / "encoder")
    given = client.post("/embed", json={"texts": TEXTS}).json()
    assert given["model"] == "encoder"
    np.testing.assert_allclose(given["vectors"], encoder.encode(TEXTS), atol=1e-6)
    (cut,) = client.post("/embed", json={"text": "a dog", "prompt": "query", "dimension": 4}).json()[
        "vectors"
    ]
    expected = encoder.encode(["a dog"], "the ")[0, :4]
    np.testing.assert_allclose(cut, expected / np.linalg.norm(expected), atol=1e-6)


def test_an_encoder_without_a_head_gives_vectors(tmp_path: Path) -> None:
    served = ServedModel(save_backbone("mpnet", tmp_path / "bare"), SPEC)
    assert (served.kind, served.about.reads, served.width) == ("embedding", ("text",), 16)


def test_words_and_questions_are_lists(client: TestClient, root: Path) -> None:
    rows = ["a good film", ["a", "good film"]]
    tagged = client.post("/predict", json={"texts": rows, "model": "tagging"}).json()["answers"]
    assert [item["words"] for item in tagged] == [["a", "good", "film"], ["a", "good film"]]
    passage = "a good film ."
    (found,) = client.post("/predict", json={"text": ["the cat ?", passage], "model": "span"}).json()[
        "answers"
    ]
    assert found["answer"] in passage


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/predict", {"content": b"{"}, 400, "The body is no JSON"),
    ("/predict", {"content": b'{"text": "\xff"}'}, 400, "not UTF-8"),
    ("/predict", {"content": b"[" * 1900}, 400, "nested too deeply"),
    ("/predict", {"content": b'"a text"'}, 400, "must be an object"),
    ("/predict", {"json": {"txts": ["a"]}}, 400, 'Did you mean "texts"?'),
    ("/predict", {"json": {"texts": []}}, 400, "at least one text"),
    ("/predict", {"json": {"texts": ["a"], "text": "b"}}, 400, 'either "text" or "texts"'),
    ("/predict", {"json": {"texts": ["a", 7]}}, 400, "Text 2 must be a string"),
    ("/predict", {"content": b'{"text": "\\ud800"}'}, 400, "half of a character"),
    ("/predict", {"json": {"text": "a"}}, 400, "Several models answer on /predict"),
    ("/predict", {"json": {"text": "a", "model": "classifcation"}}, 404, 'Did you mean "classification"?'),
    ("/predict", {"json": {"text": "a", "model": "../classification"}}, 404, "There is no such model"),
    ("/predict", {"json": {"text": "a", "model": "encoder"}}, 400, "does not answer on /predict"),
    ("/predict", {"json": {"text": "a", "model": "span"}}, 400, "reads 2 (question, context)"),
    (
        "/predict",
        {"json": {"text": ["a", "b"], "model": "span", "probabilities": True}},
        400,
        "spans of text",
    ),
    ("/predict", {"json": {"text": "a", "model": "tagging", "prompt": "query"}}, 400, "are for vectors"),
    ("/predict", {"json": {"texts": ["a"] * 9, "model": "tagging"}}, 413, "may have 8 texts, but got 9"),
    ("/predict", {"json": {"text": "a" * 101, "model": "tagging"}}, 413, "may have 100 characters"),
    ("/predict", {"content": b" " * 2001}, 413, "may have 2,000 bytes"),
    ("/predict", {"data": {"text": "a"}}, 415, "application/json"),
    ("/embed", {"json": {"text": "a", "dimension": 17}}, 400, "at most 16"),
    ("/embed", {"json": {"text": "a", "dimension": True}}, 400, "must be a whole number"),
    ("/embed", {"json": {"text": "a", "prompt": "x"}}, 400, 'Known: "query"'),
    ("/models", {"json": {}}, 405, "This path takes GET and HEAD alone"),
    ("/etc/passwd", {"json": {}}, 404, "There is no such path"),
]


@pytest.mark.parametrize(("path", "body", "status", "sentence"), WRONG)
def test_a_wrong_request_has_its_status_and_one_sentence(
    client: TestClient, path: str, body: dict[str, Any], status: int, sentence: str
) -> None:
    headers = {"Content-Type": "application/json"} if "content" in body else {}
    given = client.post(path, headers=headers, **body)
    assert given.status_code == status
    assert list(given.json()) == ["error"]
    assert sentence in given.json()["error"]


@pytest.mark.parametrize("path", ["/predict", "/models"])
def test_headers_and_addresses_over_their_limit_are_refused_however_they_come(
    client: TestClient, path: str
) -> None:
    ask = client.post if path == "/predict" else client.get
    for given in (ask(path, headers={"x": "a" * 20_000}), ask(f"{path}?x={'a' * 20_000}")):
        assert given.status_code == 431
        assert given.json() == {"error": "Address and headers may have 16,384 bytes. Send shorter ones."}


def test_models_health_description_metrics_and_page(client: TestClient) -> None:
    about = {item["name"]: item for item in client.get("/models").json()["models"]}
    assert about["span"]["reads"] == ["question", "context"]
    assert (about["encoder"]["dimension"], about["encoder"]["prompts"]) == (16, ["query"])
    assert client.get("/health").json() == {"status": "ok"}
    described = client.get("/openapi.json").json()
    limit = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert limit["properties"]["texts"]["maxItems"] == 8
    client.post("/embed", json={"texts": TEXTS})
    counted = client.get("/metrics").text
    assert 'bermo_requests_total{path="/embed",status="200"}' in counted
    assert 'bermo_batch_texts_bucket{model="encoder",le="+Inf"}' in counted
    assert 'bermo_waiting_texts{model="encoder"} 0' in counted
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_every_path_of_the_application_is_described(server: Server, client: TestClient) -> None:
    paths = {route.path for route in server.app().routes}  # type: ignore[attr-defined]
    assert client.get("/openapi.json").json()["paths"].keys() == paths


def test_a_model_that_fails_is_status_500_and_the_server_goes_on(
    client: TestClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("of the model")

    with monkeypatch.context() as patch:
        patch.setattr(server.models["encoder"], "_vectors", fail)
        given = client.post("/embed", json={"text": "a"})
    assert given.status_code == 500
    assert given.json() == {"error": "The server failed at this request. Its log says why."}
    assert client.post("/embed", json={"text": "a"}).status_code == 200


def test_a_client_that_goes_before_its_body_is_whole_is_no_failure(server: Server) -> None:
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/embed",
        "headers": [(b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(server.app()(scope, receive, send))
    assert sent[0]["status"] == 400


def test_a_body_that_is_too_large_is_read_a_while_so_that_its_client_gets_the_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bermo.ship.serve.app.DROPPED", 3000)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/embed",
        "headers": [(b"content-type", b"application/json")],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    for num_parts, num_read in ((4, 4), (100, 6)):
        parts = [{"type": "http.request", "body": b" " * 1000, "more_body": True}] * num_parts
        coming = iter([*parts, {"type": "http.request", "body": b"", "more_body": False}])
        read: list[Any] = []

        async def receive(coming: Any = coming, read: Any = read) -> dict[str, Any]:
            read.append(next(coming))
            return read[-1]

        sent.clear()
        asyncio.run(server.app()(scope, receive, send))
        assert sent[0]["status"] == 413
        assert sum(bool(part["body"]) for part in read) == num_read


def test_a_server_that_stops_takes_nothing_new(server: Server, client: TestClient) -> None:
    ended: list[bool] = []
    server.stop(lambda: ended.append(True), 0)
    given = client.post("/embed", json={"text": "a"})
    assert (given.status_code, given.headers["connection"]) == (503, "close")
    assert given.json()["error"].startswith("The server is stopping")
    assert client.get("/health").status_code == 503
    assert ended == [True]
    server.is_stopping = False
    assert client.post("/embed", json={"text": "a"}).status_code == 200
