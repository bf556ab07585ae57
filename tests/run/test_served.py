"""Where the tokenizer of an engine's model comes from: what is given, or where the engine says that its model lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rollbook import UsageError, load_policy, load_renderer
from rollbook.policy import parse_policy_name
from rollbook.run import check_template
from rollbook.run.access import Access
from rollbook.run.served import ModelSource, files_for
from tests.policy.serving import serving
from tests.run.run_made import model_folder, script

Said = dict[str, Any]


def against(replies: dict[str, Said | int | bytes], ask: Callable[[str], Any], keys: list[str] | None = None) -> Any:
    """What `ask` gives for the URL of a server with these replies: a document, a status or bytes for each path."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if keys is not None:
            keys.append(request.headers.get("Authorization", ""))
        said = replies.get(request.path, 404)
        if isinstance(said, int):
            return web.Response(status=said)
        return web.json_response(said) if isinstance(said, dict) else web.Response(body=said)

    async def run() -> Any:
        async with serving(handle) as url:
            return await asyncio.to_thread(ask, url)

    return asyncio.run(run())


def files(name: str, folder: Path, *, api_key: str | None = None, **source: Any) -> Any:
    access = Access(api_key=api_key, cache=folder / "cache")
    return files_for(parse_policy_name(name), ModelSource(access=access, **source))


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm", {"/v1/models": lambda path: {"data": [{"id": "m", "root": path}]}}),
        ("sglang", {"/model_info": lambda path: {"model_path": "/none", "tokenizer_path": path}}),
        ("sglang", {"/get_model_info": lambda path: {"model_path": path}}),
        ("llamacpp", {"/props": lambda path: {"model_path": path, "total_slots": 4}}),
    ],
)
def test_each_engine_says_where_its_model_lies(engine: str, said: dict[str, Any], tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    replies = {path: make(str(folder)) for path, make in said.items()}
    found = against(replies, lambda url: files(f"{engine}:{url}", tmp_path))
    assert found.tokenizer_json == (folder / "tokenizer.json").read_bytes()


def test_one_of_several_models_is_named(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    rows = [{"id": "a", "root": "/nowhere"}, {"id": "b", "root": str(folder)}]
    replies: dict[str, Said | int | bytes] = {"/v1/models": {"data": rows}}
    assert against(replies, lambda url: files(f"vllm:{url}#b", tmp_path)).template
    with pytest.raises(UsageError, match="does not say where its model lies"):
        against(replies, lambda url: files(f"vllm:{url}", tmp_path))
    with pytest.raises(UsageError, match="does not say where its model lies"):
        against(replies, lambda url: files(f"vllm:{url}#c", tmp_path))


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ({"/v1/models": {"data": [{"id": "m", "root": "org/model"}]}}, "'org/model', which is not on this machine"),
        ({"/v1/models": {"data": [{"id": "m", "root": "/none/m"}]}}, "'/none/m', which is not on this machine"),
        ({"/v1/models": {"data": [{"id": "m"}]}}, "does not say where its model lies: .*--tokenizer PATH"),
        ({}, "does not say where its model lies"),
        ({"/v1/models": 401}, "refuses access .HTTP 401.: give its key in ROLLBOOK_API_KEY"),
        ({"/v1/models": 500}, "cannot be asked what it serves .HTTP 500"),
        ({"/v1/models": b"<html>"}, "does not answer as such an engine does"),
        ({"/v1/models": {"data": 7}}, "does not answer as such an engine does"),
    ],
)
def test_what_cannot_be_found_says_what_to_do(
    replies: dict[str, Said | int | bytes], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        against(replies, lambda url: files(f"vllm:{url}", tmp_path))


def test_an_engine_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be reached .*: see that it runs"):
        files("vllm:http://127.0.0.1:9", tmp_path)


def test_the_key_is_sent_and_not_shown(tmp_path: Path) -> None:
    keys: list[str] = []
    replies: dict[str, Said | int | bytes] = {"/v1/models": 403}
    with pytest.raises(UsageError) as refused:
        against(replies, lambda url: files(f"vllm:{url}", tmp_path, api_key="s3cret"), keys)
    assert keys == ["Bearer s3cret"]
    assert "s3cret" not in str(refused.value) + repr(ModelSource(access=Access(api_key="s3cret")))


def test_the_client_sends_the_key_too(tmp_path: Path) -> None:
    folder, keys = model_folder(tmp_path / "m"), list[str]()

    def start(url: str) -> None:
        asyncio.run(load_policy(f"vllm:{url}", tokenizer=folder, api_key="s3cret").policy.start())

    with pytest.raises(UsageError):
        against({}, start, keys)
    assert set(keys) == {"Bearer s3cret"}


def test_a_tokenizer_that_is_given_is_taken_and_nobody_is_asked(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    name = "sglang:http://127.0.0.1:9"
    scripted = script(tmp_path / "s", "Hi.")
    assert (
        files(name, tmp_path, tokenizer=folder).tokenizer_hash
        == files(name, tmp_path, tokenizer=scripted).tokenizer_hash
    )
    assert load_renderer(name, tokenizer=str(folder)).info.stop_ids
    assert check_template(name, tokenizer=folder).findings
    loaded = load_policy(name, tokenizer=folder, api_key="s3cret")
    assert "s3cret" not in repr(loaded)
    with pytest.raises(UsageError, match="has no files of its own"):
        files(name, tmp_path, tokenizer="vllm:http://h")


def test_what_has_a_tokenizer_gets_no_other(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    scripted = script(tmp_path / "s", "Hi.")
    for ask in (load_policy, load_renderer, check_template):
        with pytest.raises(UsageError, match="--tokenizer"):
            ask(scripted, tokenizer=folder)
    with pytest.raises(UsageError, match="is no engine behind a URL"):
        check_template(folder, tokenizer=folder)


def test_a_text_only_endpoint_has_no_renderer_and_takes_nothing_of_one(tmp_path: Path) -> None:
    name = "text:http://127.0.0.1:9#m"
    loaded = load_policy(name, api_key="s3cret")
    assert loaded.text is not None
    assert "s3cret" not in repr(loaded)
    with pytest.raises(UsageError, match="renders by itself"):
        load_policy(name, tokenizer=tmp_path)
    with pytest.raises(UsageError, match="text-only endpoint"):
        load_renderer(name)


def test_no_redirect_is_followed_for_it_would_carry_the_key(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=302, headers={"Location": "/stolen"})

    async def run() -> None:
        async with serving(handle) as url:
            await asyncio.to_thread(lambda: files(f"vllm:{url}", tmp_path, api_key="sekret-key"))

    with pytest.raises(UsageError, match="HTTP 302"):
        asyncio.run(run())
    assert seen == ["/v1/models"]


@pytest.mark.parametrize("key", ["s3cret\n", "s3cret\u4e2d"])
def test_a_key_that_no_header_holds_is_refused_and_not_shown(key: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="key is empty or holds") as caught:
        files("vllm:http://127.0.0.1:1", tmp_path, api_key=key)
    assert "s3" not in str(caught.value)


def test_a_path_that_no_machine_has_is_not_there(tmp_path: Path) -> None:
    rows = [{"id": "m", "root": "/" + "a" * 5000}]
    with pytest.raises(UsageError, match="not on this machine"):
        against({"/v1/models": {"data": rows}}, lambda url: files(f"vllm:{url}", tmp_path))


def test_an_answer_that_drips_has_an_end(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b" ")
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with serving(handle) as url:
            await asyncio.to_thread(lambda: files(f"vllm:{url}", tmp_path, seconds=0.3))

    with pytest.raises(UsageError, match="no whole answer within"):
        asyncio.run(run())
