"""URLs and keys: no secret is recorded, and what no client can send is refused in time."""

from __future__ import annotations

import pytest

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import parse_policy_name
from rollbook.policy.address import check_key, redacted, url_problem
from rollbook.policy.http import EngineAddress


@pytest.mark.parametrize(
    "url", ["http://h", "https://h:1/v1", "http://[::1]:8000", "http://10.0.0.7", "http://a.b.", "http://xn--hst-sna"]
)
def test_urls(url: str) -> None:
    assert url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    ["", "h", "ftp://h", "http://", "http://a..b", "http://" + "a" * 70 + ".com", "http://h:0", "http://h:99999",
     "http://[::1", "http://h\u00f6st", "http://h/p\u00e4", "http://h /x", "http://h/\n", "http://h/\x1b[31m", "http://\ud800"],
)  # fmt: skip
def test_no_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a URL"):
        EngineAddress(url=url)
    with pytest.raises(UsageError):
        parse_policy_name(f"vllm:{url}")


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@h",
        "http://s3cret@h:1/x",
        "http://me:s3/cret@h",
        "http://me:s3cret@h:99999",
        "http://h?k=s3cret",
    ],
)
@pytest.mark.parametrize("form", ["vllm:{}", "text:{}#m", "text:{}", "sglang:{}#", "other:{}", "{}"])
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str, form: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy_name(form.format(url))
    assert "s3" not in str(caught.value)
    with pytest.raises(ConfigError, match="would be recorded") as refused:
        EngineAddress(url=url)
    assert "s3" not in str(refused.value)
    assert "s3" not in redacted(form.format(url))


@pytest.mark.parametrize("key", ["", "s3cret\n", "s3 cret", "s3cr\u00e9t", "s3cret\ud800", "s3cret\0"])
def test_a_key_that_no_header_holds_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError, match="key is empty or holds") as caught:
        EngineAddress(url="http://h", api_key=key)
    assert "s3" not in str(caught.value)


def test_keys() -> None:
    check_key(None)
    check_key("sk-AZ09_.~+/=")
