"""HTML as text for a model."""

from __future__ import annotations

import pytest

from infloop.tools.web.readable import readable_text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain < text & more", "plain < text & more"),
        ("<p>a</p><p>b\n c", "a\n\nb c"),
        ("<h2>Title</h2><ul><li>one<li>two</ul>", "## Title\n\n- one\n- two"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("<tr><td>1</td><td>2</td></tr>", "| 1 | 2"),
        ("<a href='/x?a=1&amp;b=2'>x</a>", "x (/x?a=1&b=2)"),
        ("<a href='#top'>x</a> <a href=javascript:y()>z</a>", "x z"),
        ('<a title="a > b" href="/c">d</a>', "d (/c)"),
        ("a<!-- <b>hidden</b> -->b", "ab"),
        ("a<script>if (x < y) {}</SCRIPT >b<style>p {}</style>c", "abc"),
        ("&lt;b&gt; &#x263a; &nosuch; &#0;", "<b> ☺ &nosuch; \ufffd"),
        ("a<script>never closed", "a"),
        ("a<!-- never closed", "a"),
        ("a<b title='never closed>c", "a"),
        ("<pre></pre></pre></a></li>x", "x"),
        ("&#" + "9" * 10_000 + ";", "&#" + "9" * 10_000 + ";"),
    ],
)
def test_what_a_reader_sees_is_kept(page: str, text: str) -> None:
    assert readable_text(page) == text


@pytest.mark.parametrize(
    "part",
    [
        "<",
        "<a ",
        "<a b=",
        "<a b='",
        "<!",
        "<!--",
        "<?",
        "</",
        "<![CDATA[",
        "<script>",
        "<a href= ",
        "= ",
    ],
)
@pytest.mark.timeout(20)
def test_a_hostile_page_takes_linear_time(part: str) -> None:
    """Quadratic time would be hours."""
    readable_text(part * (1_000_000 // len(part)))
