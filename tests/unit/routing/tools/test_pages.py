"""What pages say, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from routing.tools import pages
from routing.tools.pages import page_text


def test_a_page_is_its_text() -> None:
    html = (
        "<html><head><title> The  title </title><style>a{}</style></head>"
        "<body><script>no()</script>"
        "<h1>One &amp; two</h1><p>Some <b>bold</b> words.<br>More"
    )
    assert page_text(html) == ("The title", "One & two\nSome bold words.\nMore")


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("a &lt;b&gt; &#65;&#x42; &amp", "a <b> AB &"),
        ("a &#" + "9" * 5000 + "; b", "a \ufffd b"),
        ("1 < 2, a<b", "1 < 2, a"),
        ("<p title='>' data-x=\"a>b\">in</p>", "in"),
        ('<a href=x"y>in</a>', "in"),
        ("<!-- a > b --!>in<!-->seen<!doctype x>, <?php y?>too", "inseen, too"),
        ("<!-- no end", ""),
        ("in<![CDATA[x]]>, in</>side</ x>", "in, inside"),
        ("<script>'</scripts>' < \"<p>\"</script>in", "in"),
        ("<script>no end", ""),
        ("<style>a</style\n>in", "in"),
        ("<textarea><b>x</b></textarea>", "<b>x</b>"),
        ("<svg/>in<svg><g>x</g></svg>", "in"),
        ("<template>x<svg>y</svg></template>in", "in"),
        ("<script/>x</script>in", "in"),
        ("in<a href='", "in"),
        ("in<", "in<"),
    ],
)
def test_what_is_markup_is_so_to_browsers(html: str, said: str) -> None:
    assert page_text(html) == ("", said)


def test_titles_of_drawings_are_not_the_page_s() -> None:
    html = "<title>One <b></title><svg><title>Menu</title></svg><title>Two</title>in"
    assert page_text(html) == ("One <b>", "in")
    assert page_text("<svg><title>Menu</title></svg>in") == ("", "in")


def test_what_may_be_left_out_is_not_missed() -> None:
    assert page_text("<!doctype html><head><title>T</title><h1>Hi</h1>in") == ("T", "Hi\nin")


@pytest.mark.parametrize(
    ("unit", "looks"),
    [
        *((each, 1) for each in ("<a ", "<a b='", '<a b="', "<a b=", "<a b= ", "<a==", "</a")),
        *((each, 1) for each in ("</", "<!", "<!--", "<![", "<?", "<script>", "<title>")),
        *((each, 1) for each in ("<textarea></textare", "&#", "&#x", "= ")),
        *((each, 1000) for each in ("<", "<svg>", "<b>")),
        ("a<", 2),
        ("a<b>", 2000),
    ],
)
def test_each_character_is_read_once(
    unit: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no end goes to the end of the page, where it is looked for once."""
    places: list[int] = []

    def noted(html: str, at: int, found: Any) -> int:
        places.append(read_on(html, at, found))
        return places[-1]

    read_on = pages._read_on
    monkeypatch.setattr(pages, "_read_on", noted)
    html = unit * 1000
    page_text(html)
    assert (len(places), places[-1]) == (looks, len(html))
