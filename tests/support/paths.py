"""Where the project, its tests and their fixtures are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
FIXTURES = TESTS / "fixtures"
TRANSCRIPTS = FIXTURES / "transcripts"
ATTACK_TABLES = TESTS / "attacks/tables"
CHILDREN = TESTS / "support/children"
"""Programs that tests start as processes of their own."""
