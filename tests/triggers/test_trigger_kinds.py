"""The kinds of triggers and the signature schemes: each name has its implementation."""

from __future__ import annotations

import argparse
from typing import Any, get_args

import pytest

from infloop.model.events import Cause, TriggerKindName
from infloop.model.plugin import SchemeName, Signature
from infloop.model.trigger import KIND_OPTIONS, Trigger
from infloop.triggers import KINDS, kind_named
from infloop.triggers.kinds.base import TriggerKind
from infloop.triggers.signatures import SCHEMES, sign, verify


def test_each_kind_that_a_file_can_name_is_listed_once() -> None:
    assert sorted(kind.name for kind in KINDS) == sorted(get_args(TriggerKindName))
    assert all(kind_named(kind.name) is kind for kind in KINDS)


def test_the_options_of_a_kind_are_a_field_of_a_trigger() -> None:
    assert set(KIND_OPTIONS) <= set(get_args(TriggerKindName))
    assert set(KIND_OPTIONS.values()) <= set(Trigger.model_fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_options_of_no_kind_clash_with_those_of_another(kind: TriggerKind) -> None:
    parser = argparse.ArgumentParser()
    for one in KINDS:
        one.add_options(parser.add_argument_group(one.title))
    args = parser.parse_args([])
    assert not kind.is_chosen(args)
    assert "kind" not in kind.fields(args)


def test_values_of_a_kind_are_untrusted_unless_it_says_otherwise() -> None:
    assert not TriggerKind.is_trusted
    assert not any(kind.is_trusted for kind in KINDS if kind.takes_requests)
    assert not kind_named("file").is_trusted


def test_what_takes_requests_is_caused_from_outside() -> None:
    for kind in KINDS:
        assert Cause(kind.name).from_outside or not kind.takes_requests
    assert not Cause("schedule").from_outside
    unlisted: Any = "new"
    assert Cause(unlisted).from_outside


def test_each_signature_scheme_but_the_token_has_a_digest() -> None:
    assert {*SCHEMES, "token"} == set(get_args(SchemeName))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_what_a_scheme_signs_it_verifies(scheme: SchemeName, encoding: str) -> None:
    signature = Signature(header="x-signature", scheme=scheme, format=f"v1=<{encoding}>")
    headers = tuple(sign(signature, "secret", b"body", 0, "id").items())
    assert verify(signature, ["secret"], headers, b"body", 0).ok
    assert verify(signature, ["secret"], headers, b"other", 0).reason == "mismatch"
    assert verify(signature, ["other"], headers, b"body", 0).reason == "mismatch"
