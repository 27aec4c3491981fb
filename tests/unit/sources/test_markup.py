"""Wiki markup to text: what a reader sees stays, everything else goes."""

from __future__ import annotations

import pytest
from mwparserfromhell.parser import ParserError

from xalign_ray.sources.markup import Page, read_paragraphs


@pytest.mark.parametrize(
    ("markup", "paragraphs"),
    [
        ("A '''bold''' and ''slanted'' word.", ("A bold and slanted word.",)),
        ("One.\n\nTwo.\nThree.", ("One.", "Two.", "Three.")),
        ("A [[cat]], two [[cat]]s, a [[Felis catus|house cat]].", ("A cat, two cats, a house cat.",)),
        ("A [http://x.y/z site], [http://x.y] and http://x.y/z here.", ("A site, and here.",)),
        ("Text.<ref>Note {{cite|a}}</ref> More.<ref name=x />", ("Text. More.",)),
        ("Seen <!-- hidden\nhidden --> text. <!-- never closed", ("Seen text.",)),
        ("{{Infobox\n| name = X\n| text = [[Y]]\n}}\nText.", ("Text.",)),
        ("{| class=x\n|-\n! head\n| cell || cell\n{|\n| inner\n|}\n|}\nText.", ("Text.",)),
        ("Text.\n|-\n| torn table\n|}", ("Text.",)),
        ("* one\n** two\n# three\n; term : meaning\n: said", ("one", "two", "three", "term", "meaning", "said")),
        ("== Head ==\nText.\n=== Sub ===\nMore.", ("Head", "Text.", "Sub", "More.")),
        ("Text.\n== Notes ==\n<references />\n== Links ==\n{{x}}\n=== None ===\n", ("Text.",)),
        ("== Empty ==\n== Full ==\nText.", ("Full", "Text.")),
        ("[[File:a.jpg|thumb|A [[cat]] and text]]Text.", ("Text.",)),
        ("[[Datei:a.jpg|mini|Katze]][[Bild:b.PNG|mini|Hund]]Text.", ("Text.",)),
        ("Text here. [[Kategorie:Ein_Ort]] [[\u200fKategorie:A|x]] [[\u200eDatei:x.png|mini|y]]", ("Text here.",)),
        ("__KEIN_INHALTSVERZEICHNIS__\n__notoc__\nText.\n* __init__ is one", ("Text.", "__init__ is one")),
        (
            "The function <code>main()</code> calls <code>int a[]</code> here.",
            ("The function main() calls int a[] here.",),
        ),
        ("Text.\n[[Kategorie:A]]\n[[Category:B|*]]", ("Text.",)),
        ("Text.\n[[Jamii:Berlin| ]] [[Jamii:Miji]]\n[[de:Berlin]]\n[[simple:Berlin]]\n[[zh-yue:B]]", ("Text.",)),
        ("See [[:Category:Cats]] and [[:de:Katze|the German one]].", ("See Category:Cats and the German one.",)),
        ("[[Alien: Resurrection]] is a film.", ("Alien: Resurrection is a film.",)),
        ("The 5&nbsp;km road &amp; x&lt;y &#1041;.", ("The 5 km road & x<y \u0411.",)),
        (
            "From 1914&#150;18 it&#x92;s &#147;A&#148;, 5&#128;.",
            ("From 1914\u201318 it\u2019s \u201cA\u201d, 5\u20ac.",),
        ),
        ("From 1914&#10;18 to 20&#129;21 and 5&#xD800;6.", ("From 1914 18 to 20 21 and 5 6.",)),
        ("Hear [[Datei:a.ogg|it]][[Medium:a.ogg|the anthem]].", ("Hear the anthem.",)),
        ("A line.<br/>Another.<div>A block.</div>", ("A line.", "Another.", "A block.")),
        ("H<sub>2</sub>O and <nowiki>[[raw]]</nowiki> and <code>x</code>.", ("H2O and [[raw]] and x.",)),
        ("A m</sup> is</small> long.</div> He came.", ("A m is long.", "He came.")),
        ("Let <math>x</math> be.<gallery>File:a.jpg|cap</gallery>", ("Let x be.",)),
        ("__NOTOC__\nText __TOC__ here.", ("Text here.",)),
        ("Berlin ({{IPA|x}}, {{lang-de|Berlin}}) and ({{IPA|x}}; {{x}}).", ("Berlin (Berlin) and.",)),
        ("\u67cf\u6797\uff08{{IPA-de|x}}\uff09\u662f\u57ce\u5e02\u3002", ("\u67cf\u6797\u662f\u57ce\u5e02\u3002",)),
        ("-{zh-hans:\u8054\u90a6\u5dde; zh-hant:\u90a6}- -{A}--{H|zh-cn:B;zh-tw:C}-", ("\u8054\u90a6\u5dde A",)),
        ("1990\n----\n,\nText.", ("Text.",)),
        ("'''''Torn quotes'' here", ("Torn quotes here",)),
    ],
)
def test_markup_becomes_what_a_reader_sees(markup: str, paragraphs: tuple[str, ...]) -> None:
    assert read_paragraphs(markup, Page(frozenset({"datei", "kategorie"}), frozenset({"medium"}))) == paragraphs


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("About {{convert|5|km|mi}} long.", "About 5 km long."),
        (
            "Greek {{lang|grc|\u1f00\u03bd\u03b1\u03c1\u03c7\u03af\u03b1}}.",
            "Greek \u1f00\u03bd\u03b1\u03c1\u03c7\u03af\u03b1.",
        ),
        ("Greek {{transl|grc|anarkhia}}.", "Greek anarkhia."),
        ("German {{lang-de|''[[Berlin]]''}}.", "German Berlin."),
        ("{{nowrap|10 [[km]]}} away", "10 km away"),
        ("Nothing{{convert}}{{lang|de}} at all{{citation needed|date=May}}.", "Nothing at all."),
    ],
)
def test_templates_that_hold_words_of_the_sentence_show_them(markup: str, text: str) -> None:
    assert read_paragraphs(markup) == (text,)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("L''''Autriche''' est", "L'Autriche est"),
        ("dans l'''Historia gentis'' et", "dans l'Historia gentis et"),
        ("dans l{{'}}''Historia'' et", "dans l'Historia et"),
        ("the ''a'''s end", "the a's end"),
        ("'''Bold''' and ''slant'' and '''''both'''''", "Bold and slant and both"),
        ("''{{nowrap|Name}}'' (UK)", "Name (UK)"),
        ("''''''six", "'six"),
        ("don't, 'this' stays", "don't, 'this' stays"),
    ],
)
def test_apostrophes_that_are_no_marks_stay(markup: str, text: str) -> None:
    assert read_paragraphs(markup) == (text,)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("* {{unicode|x}}: Coptic letter", "Coptic letter"),
        ("Eagle{{'s}} 15{{nbsp}}May, a [[17.&nbsp;Juni]] day", "Eagle's 15 May, a 17. Juni day"),
        (", ISBN 0-1", "ISBN 0-1"),
        ("For example, {{sfn|f}}, {{sfn|g}}.", "For example."),
        ("a line that ends, {{sfn|f}}) a bracket", "a line that ends) a bracket"),
        ("It was .79 or 1, .5 at most", "It was .79 or 1, .5 at most"),
        ("...and so on", "...and so on"),
    ],
)
def test_holes_leave_no_stray_marks(markup: str, text: str) -> None:
    assert read_paragraphs(markup) == (text,)


def test_a_quotation_template_is_a_paragraph_of_its_own() -> None:
    assert read_paragraphs("He states: {{quote|Mankind is free.|author=W}} And so on.") == (
        "He states:",
        "Mankind is free.",
        "And so on.",
    )
    assert read_paragraphs("Er sagt:\n{{Zitat\n |Text=Alle [[Liebe]].\n |Autor=S}}\nEnde.") == (
        "Er sagt:",
        "Alle Liebe.",
        "Ende.",
    )


def test_text_can_always_be_written_to_a_file() -> None:
    paragraphs = read_paragraphs("a&#xD800;b&#x1;c &#x1F600;")
    assert "".join(paragraphs).encode("utf-8").decode("utf-8") == paragraphs[0]
    assert "\U0001f600" in paragraphs[0]


@pytest.mark.parametrize("opened", ["{{a|", "[[a|", "[http://a ", "<b>", "{{{a|", "<b ", "</br ", "</b><b :", "x<1 "])
def test_marks_that_are_opened_without_end_are_refused_before_they_are_parsed(opened: str) -> None:
    with pytest.raises(ParserError, match="more than 1000 marks are open at once"):
        read_paragraphs(opened * 200_000)  # parsed, these would take hours


def test_many_closed_marks_are_no_reason_to_refuse() -> None:
    text = "<br>a {{sfn|b}} [[c]] [http://d e] <ref>f</ref> <i>g</i><references />\n" * 1_500
    assert len(read_paragraphs(text)) == 1_500
