"""Secrets are recognised by their form or place, and other texts stay as they are."""

from __future__ import annotations

import pytest

from mlbackends.base.patterns import without_secrets

SECRET = "a1B2c3D4e5F6g7H8i9J0k1L2"


@pytest.mark.parametrize(
    "text",
    [
        "https://s.blob.core.windows.net/w/torch.whl?sv=2024&sig={}&se=1",
        "https://b.s3.amazonaws.com/w?X-Amz-Credential={}&X-Amz-Signature={}&X-Amz-Date=1",
        "https://b.s3.amazonaws.com/w?X-Amz-Security-Token={}",
        "https://storage.googleapis.com/w?X-Goog-Signature={}",
        "https://example.org/simple?access_token={}#egg=x",
        "https://example.org/simple?token={}",
        "https://example.org/?a=b&api_key={}&c=d",
        "Authorization: Bearer {}", "AUTHORIZATION: BEARER {}", "https://e.org/?TOKEN={}",
        "curl -H 'Authorization: Basic {}'",
        "ghp_{}", "github_pat_11{}", "hf_{}", "sk-{}", "sk-proj-{}", "xoxb-12-{}", "glpat-{}",
        "/opt/hf_{}/lib",
        "token={}", "user=joe;password={};se=1", "HF_TOKEN={} serve", "api_key={},x=1", "PASSWD={}",
        "serve --api-key {} --port 8000", "serve --hf-token={} --port 8000",
    ],
)  # fmt: skip
def test_a_secret_is_left_out_and_the_rest_stays(text: str) -> None:
    wanted = text.replace("{}", SECRET)

    cleaned = without_secrets(wanted)

    assert SECRET not in cleaned
    for part in ("sv=2024", "&se=1", "&X-Amz-Date=1", "#egg=x", "&c=d", "/lib", "--port 8000"):
        assert (part in wanted) == (part in cleaned)
    assert without_secrets(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "hf_transfer", "/usr/lib/libsk-something.so.1", "the token of a bearer", "monkey=1", "sk-learn",
        "https://download.pytorch.org/whl/cu128?version=2.7", "keyboard=de", "task-1234567890123456789012",
        "tokenizers 0.21.1", "--token-count 512", "signature=f32:f32", "AKIA", "OMP_PLACES={0:4}",
        "tokens=512", "sort_key=cpu",
    ],
)  # fmt: skip
def test_other_texts_stay(text: str) -> None:
    assert without_secrets(text) == text
