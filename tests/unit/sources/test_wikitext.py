# ruff: noqa: RUF001 - what MediaWiki shows holds minus signs, dashes and crosses
"""Wikitext to text, one row a case: what MediaWiki shows, or no such sentence, counted; never part of a number."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from xalign_ray.sources.markup import (
    BRACKETS,
    FOOTNOTES,
    LEFT_OUT,
    SENTENCES,
    STRAY_ROWS,
    Page,
    read_paragraphs,
)


def text_of(markup: str, **page: str) -> tuple[str, dict[str, int]]:
    """Its lines, and what was counted."""
    noted: Counter[str] = Counter()
    paragraphs = read_paragraphs(markup, Page(noted=noted, **page))  # type: ignore[arg-type]
    return "\n".join(paragraphs), dict(+noted)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("He said {{cita|esto}} that year.", "He said esto that year."),
        ("He said {{citazione|questo}} that year.", "He said questo that year."),
        ("He said {{citação|isto}} that year.", "He said isto that year."),
        ("He said {{citaat|dit}} that year.", "He said dit that year."),
        ("He said {{Цитата|это|Автор}} that year.", "He said это that year."),
    ],
)
def test_quotations_inside_a_sentence_are_part_of_it(markup: str, text: str) -> None:
    assert text_of(markup)[0] == text


@pytest.mark.parametrize(
    "markup",
    [
        "{{Cita|Una frase bastante larga, como las que se citan.|Autor}}",
        "{{quote|Una frase bastante larga, como las que se citan.}}",
        "{{citat|text=Una frase bastante larga, como las que se citan.}}",
    ],
)
def test_quotations_on_a_line_of_their_own_are_paragraphs(markup: str) -> None:
    assert text_of(markup)[0] == "Una frase bastante larga, como las que se citan."


@pytest.mark.parametrize("name", ["sfnp", "Harvnb", "efn-ua", "cite web", "Use dmy dates", "r", "flagicon", "de icon"])
def test_marks_leave_no_hole(name: str) -> None:
    assert text_of(f"The river {{{{{name}|Smith|1990}}}} flows.") == ("The river flows.", {})


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("{{convert|100|km|mi|0}}", "100 km"),
        ("{{convert|-40|C|F}}", "-40 °C"),
        ("{{convert|1,200|m2}}", "1,200 m²"),
        ("{{convert|40|acre|ha|adj=on}}", "40 acre"),
        ("{{convert|{{formatnum:1234}}|km}}", "1234 km"),
        ("{{formatnum:-10}}", "-10"),
        ("{{formatnum: 1 000}}", "1 000"),
        ("{{formatnum:−0.5|R}}", "−0.5"),
        ("{{FORMATNUM:{{nowrap|41645}}}}", "41645"),
        ("1914{{endash}}18{{emdash}}19, 10{{times}}5{{minus}}3 a{{spaces|5}}b", "1914–18—19, 10×5−3 a b"),
    ],
)
def test_numbers_and_measures_are_shown_whole(markup: str, text: str) -> None:
    assert text_of(f"It is {markup} here.")[0] == f"It is {text} here."


@pytest.mark.parametrize(
    "markup",
    [
        "{{unknown}}",
        "{{xyz|Amstel}}",
        "{{xyz|a=b}}",
        "{{#expr:1+2}}",
        "{{times|York}}",
        "{{lang|de}}",
        "{{nowrap|{{unknown}}}}",
        # Measures of more than a number and its unit
        "{{convert|5}}",
        "{{convert||km}}",
        "{{convert|{{unknown}}|km}}",
        "{{convert|5{{unknown}}|km}}",
        "{{convert|5|km|disp=unit}}",
        "{{convert|6|ft|2|in|m|abbr=on}}",
        "{{convert|5|-|6|km|mi}}",
        "{{convert|5|km|0}}",
        "{{convert|1/2|mi}}",
        "{{convert|2.5|e6acre}}",
        "{{formatnum:{{#expr:1+2}}}}",
        "{{formatnum:}}",
        "{{formatnum:1234 km}}",
        # Parts of words and numbers
        "1914{{xyz}}18",
        "1914{{xyz|dash}}18",
        "2{{xyz}}''r''",
        "10{{hoch|6}}",
        "''10''{{xyz|-6}}",
        "10{{su|p=6}}",
        "10<sup>6</sup>{{xyz|2}}",
        "{{nowrap|1914{{xyz|dash}}18}}",
        "{{nowrap|0.{{overline|3}}}}",
        "90{{degree|5}}",
        "${{Inflation|US|500|1960}}",
        "l'{{xyz|eau}}",
        "و{{xyz|م}}",
        "שב{{xyz|ע}}",
    ],
)
def test_a_sentence_goes_and_is_counted_where_a_template_cannot_be_shown_whole(markup: str) -> None:
    text, noted = text_of(f"It stands. It is {markup} here. The end follows.")
    assert (text, noted[SENTENCES]) == ("It stands. The end follows.", 1)
    assert noted[LEFT_OUT] >= 1


@pytest.mark.parametrize(
    ("markup", "text", "noted"),
    [
        # A stop behind a word of four letters or more, or a mark that has no other use, ends a sentence.
        ("The St. {{x}} church. More text. It has Mr. Lee.", "More text. It has Mr. Lee.", {SENTENCES: 1}),
        ("In the year 1990. It is {{x}} here? Yes.", "Yes.", {SENTENCES: 1}),
        ("Es steht dort. am {{x}} Ufer. Mehr dazu.", "Mehr dazu.", {SENTENCES: 1}),
        ("第一句。他住在{{x|a=b}}城里。第三句。", "第一句。第三句。", {SENTENCES: 1}),
        ("他住在{{x}}，很好。第二句。", "第二句。", {SENTENCES: 1}),
        ("यह पहला है। वह {{x}} में है। यह तीसरा है।", "यह पहला है। यह तीसरा है।", {SENTENCES: 1}),
        ("Սա առաջինն է։ Նա {{x}} է։ Սա վերջն է։", "Սա առաջինն է։ Սա վերջն է։", {SENTENCES: 1}),
        ("A {{x}} b and {{x}} c. The other.", "", {SENTENCES: 1}),
        ("The other {{x}} b. A third {{x}} c.", "", {SENTENCES: 1}),
        ("== Of {{x}} here ==\nThe text.", "The text.", {SENTENCES: 1}),
        # A pair of brackets goes alone, or but for the elements that show nothing.
        ("Oslo ({{x}}) lies there.", "Oslo lies there.", {}),
        ("Oslo ({{x}}, {{IPA|o}}; old name) lies there.", "Oslo (old name) lies there.", {}),
        ("Oslo (born {{x}}, died there) lies there.", "Oslo lies there.", {BRACKETS: 1}),
        ("Oslo （{{x|a=b}}、旧名） lies there.", "Oslo （旧名） lies there.", {}),
        # No word is missing.
        ("* The site {{de}}", "The site", {}),
        ("It has grown (by 5){{x}} and 25%{{x}} since.", "It has grown (by 5) and 25% since.", {}),
        ("It ends there. {{x}} Then it begins.", "It ends there. Then it begins.", {}),
        ("The river {{ওয়েব আর্কাইভ|ইউআরএল=https://a.b|c=d}} flows.", "The river flows.", {}),
        ("The river {{אודיו|קובץ=a.ogg}} flows.", "The river flows.", {}),
        ("The river {{unsourced|fecha=mayo de 2020}} flows.", "The river flows.", {}),
        ("In Oslo{{x|Lee}} it (by 5){{x|Lee}} grew 25%{{x|Lee}}.", "In Oslo it (by 5) grew 25%.", {}),
        ("It ends.{{x|Lee}} It flows.{{x|Lee}}{{x|5}} It grew,{{x}} too.", "It ends. It flows. It grew, too.", {}),
        ("* {{x|Amstel}}", "", {}),
        ("{{x}} is a river. It is long.", "It is long.", {SENTENCES: 1}),
        ("{{x|About it}} The Amstel flows.", "The Amstel flows.", {}),
        ("== {{x}} Head ==\nText.", "Head\nText.", {}),
        ("The {{nowrap|river{{x|Lee}}}} of 892 km<sup>2</sup>{{x|Lee}} is.", "The river of 892 km² is.", {}),
        ("{{quote|A sentence that is long enough, in which {{y}} is missing.}}", "", {SENTENCES: 1}),
        ("The {{x|Hood}}, {{x|Ark}} and {{x|York}} sailed. All.", "All.", {SENTENCES: 1}),
        ("B ({{v-nl|a}}; {{v-fr}}; {{v-de|b}}) ir.", "B ir.", {}),
        ("The sounds {{IPA|/b/}} merge. Oslo ({{IPA|o}}; old) lies.", "Oslo (old) lies.", {SENTENCES: 1}),
        ("It (born in 1914{{x}}18) ends.", "It ends.", {BRACKETS: 1}),
    ],
)
def test_no_sentence_that_lacks_a_word_is_kept(markup: str, text: str, noted: dict[str, int]) -> None:
    shown, counts = text_of(markup)
    assert shown == text
    assert {name: counts[name] for name in (SENTENCES, BRACKETS) if name in counts} == noted


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("Let <math>x + 1</math> be <math>n</math>.", "Let x + 1 be n."),
    ],
)
def test_plain_formulas_are_words_of_a_sentence(markup: str, text: str) -> None:
    assert text_of(markup)[0] == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>6</sup> cells", "10^6 cells"),
        ("10<sup>−6</sup> m<sup>-1</sup>", "10^−6 m⁻¹"),
        ("3 km<sup>2</sup> and ''x''<sup>2</sup>", "3 km² and x²"),
        ("2<sup>''n''</sup> and 2<sup>n+1</sup>", "2^n and 2^n+1"),
        ("(a+b)<sup>2</sup>", "(a+b)^2"),
        ("21<sup>st</sup>, XX<sup>e</sup>, 1<sup>er</sup>", "21st, XXe, 1er"),
        ("1010<sub>2</sub> and CO<sub>2</sub>", "1010_2 and CO2"),
        ("3<sup>1</sup>/<sub>2</sub> and <sup>3</sup>⁄<sub>4</sub>", "3 1/2 and 3/4"),
        ("<sup>14</sup>C, a <sup>never closed", "¹⁴C, a never closed"),
        ("10<sup>10<sup>100</sup></sup> and 2<sup>2<sup>2<sup>3</sup></sup></sup>", "10^(10^100) and 2^(2^(2^3))"),
        ("''e''<sup>−''x''<sup>2</sup></sup> and x<sub>''i''<sub>2</sub></sub>", "e^(−x²) and x_(i2)"),
        ("10<sup>3a</sup>, 10<sup>−a</sup>, 10<sub>2,5</sub>, NH4<sup>+</sup>", "10^3a, 10^−a, 10_2,5, NH4+"),
        ("log<sub>10</sub>5, 10<sup>6</sup>5, 5d<sup>10</sup>6s<sup>1</sup>", "log10 5, 10^6 5, 5d¹⁰6s¹"),
    ],
)
def test_raised_and_lowered_digits_make_no_other_number(markup: str, text: str) -> None:
    assert text_of(markup)[0] == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("{{nowrap|1=E = mc²}} holds", "E = mc² holds"),
        ("{{lang|1=fr|2=bonjour}} means hello", "bonjour means hello"),
        ("{{nowrap|2=b|1=a}} and {{lang|fr|2=oui}}", "a and oui"),
        ("{{lang-de| 1 = ''a = b''}} here", "a = b here"),
        ("{{langx|fr|eau}}, ({{langx|la|rex|king}}) and {{script|Hebr|שלום}}", "eau, (rex) and שלום"),
        ("{{langue|de|texte=Autobahn}} ici", "Autobahn ici"),
        ("{{nowrap|99999999=a|1=b}} c", "b c"),
        ("{{le|甲|A}}和{{нп5|丙|B|de|C}}", "甲和丙"),
        ("{{ill|Foo|de|Bar}} and {{ill|Foo|de}}", "Foo and Foo"),
        ("{{PAGENAME}} is a village", "Oslo is a village"),
        ("{{Template:Nowrap|a}} {{nowrap\n|b}}", "a b"),
    ],
)
def test_arguments_are_found_by_number_and_by_name(markup: str, text: str) -> None:
    assert text_of(markup, title="Oslo")[0] == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("See [[doi:10.1/182|the DOI]], [[voy:B|a guide]], [[rfc:1459|RFC]].", "See the DOI, a guide, RFC."),
        ("See [[iso:639|ISO]], [[wikt:word|word]], [[Up: A]].", "See ISO, word, Up: A."),
        ("Cat [[de:Katze]][[DE:Katze]] [[zh-min-nan:X]] [[simple:Cat]] [[arz:قطة]] end", "Cat end"),
        ("See [[en:Paris|Paris]] and [[EN:Rome|it]] [[en:Oslo]] end", "See Paris and it end"),
        ("Hear [[Media:A.ogg|the anthem]] or [[media:B.ogg]] now", "Hear the anthem or now"),
    ],
)
def test_links_to_other_languages_are_hidden(markup: str, text: str) -> None:
    assert text_of(markup)[0] == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("-{zh-hans:联邦;zh-hant:聯邦}-制", "联邦制"),
        ("-{A|zh-cn:甲;zh-tw:乙}-和-{zh-hans;zh-hant|丙}-", "甲和丙"),
        ("-{[[A|乙]]}-和-{R|raw}-和-{R|zh-cn:x}-", "乙和raw和zh-cn:x"),
        ("-{T|zh:标题}--{H|zh-cn:x;zh-tw:y}--{-|zh-cn:x}--{D|zh-cn:x}-完", "完"),
        ("-{zh-hans:-{甲}-;zh-hant:乙}-和-{zh-cn:{{nowrap|丙}};zh-tw:B}-", "甲和丙"),
        ("-{zh:a&nbsp;b;zh-hant:c}-完", "a b完"),
        ("-{sr-ec:Град;sr-el:Grad}- x", "Град x"),
    ],
)
def test_language_variants_show_one_form(markup: str, text: str) -> None:
    assert text_of(markup)[0] == text


@pytest.mark.parametrize(
    ("markup", "paragraphs"),
    [
        ("A.\n{|\n<tr><td>[[a|b]]<td>c\n|}\nZ.", ("A.", "Z.")),
        ("A.\n{|\n" + "".join(f"<tr><td>[[M{i}|m]]<td>b\n" for i in range(150)) + "|}\nZ [[a|b]].", ("A.", "Z b.")),
        ("A.\n{|\n| a\n:{|\n| b\n|}\n| c\n|}\nZ.", ("A.", "Z.")),
        ("A.\n<table><tr><td>a<table><td>b</table>c</table>Z.", ("A.", "Z.")),
        ("A.\n<TABLE border=1>\n|-\n|}\nZ.", ("A.", "Z.")),
        ("A.\n{|\n| a\n</table>\nZ.", ("A.", "Z.")),
        ("A.\n{|\n| a\n|-\n! b\n\nZ.", ("A.", "Z.")),
        ("A.\n{|\n| a\n== Head ==\nZ.", ("A.", "Head", "Z.")),
        ("{{Infobox|x=\n{|\n| a\n|y=b\n}}\nZ.", ("Z.",)),
        ("{{Infobox|x=\n{|\n| a\n|}\n|}}\nZ.", ("Z.",)),
        ("A.\n{|\n| {{x\n|}}\n| b\ncell\n|}\nZ.", ("A.", "Z.")),
        ("A.\n{|\n| a\n\nText.\n{|\n| b\n|}\nZ.", ("A.", "Text.", "Z.")),
        ("<center>\n{|\n| a\n|}</center>\nZ.", ("Z.",)),
        ("<ul><li>a<li>b</ul><p>c<small>d <big>e</div> f</span>", ("a", "b", "cd e", "f")),
        ("A<br>b</br>c<BR clear=all/>d", ("A", "b", "c", "d")),
        ("== A<br>B ==\n[http://x y<br>z] and [[a|b<br>c]]", ("A B", "y", "z and b", "c")),
        ("<div>" * 150 + "A [[b|c]].", ("A c.",)),
        ("A<ref>never closed\nZ.", ("A", "Z.")),
        ("A<ref name=x/>b<REF name='y' />c<ref name=z>d</ref >e.", ("Abce.",)),
        ("A <nowiki><b>[[x]]</nowiki> <math>b</math> <q>z</q>.", ('A <b>[[x]] b "z".',)),
        ("!Kung live here.\n! head || cell\n'''!Xóõ''' too.", ("!Kung live here.", "!Xóõ too.")),
        ("Mail <john@x.org>, a <b and c, 1<2.", ("Mail <john@x.org>, a <b and c, 1<2.",)),
        ("{{nowrap|<span style='a=b'>x</span>}} y", ("x y",)),
    ],
)
def test_html_and_tables_need_no_end(markup: str, paragraphs: tuple[str, ...]) -> None:
    assert read_paragraphs(markup) == paragraphs


@pytest.mark.parametrize(
    ("markup", "noted"),
    [
        ("The river{{xyz|Smith}} flows.", {FOOTNOTES: 1}),
        ("The {{xyz}} flows.", {LEFT_OUT: 1, SENTENCES: 1}),
        ("{{nowrap|The {{xyz}} flows}} by{{nowrap|{{xyz}}}}.", {LEFT_OUT: 1, FOOTNOTES: 1, SENTENCES: 1}),
        ("Let <math>x_1</math> and <chem>y</chem> be.", {"formulas left out": 1, LEFT_OUT: 1, SENTENCES: 1}),
        ("The sum:\n<math>x</math>\n<ce>y</ce>", {}),
        ("A.\n{|\n| b", {"tables that are never closed": 1}),
        ("A<ref>b", {"tags that are never closed, left out to the end of their line": 1}),
        ("A.\n| cell of no table", {STRAY_ROWS: 1}),
        ("A [[b and c]] d", {}),
        ("A [[b and c d", {"markup left in the text: [[": 1}),
        ("A {{b and }} c }} d", {LEFT_OUT: 1, SENTENCES: 1}),
        ("A c }} d", {"markup left in the text: {{": 1}),
        ("A <foo> b", {"markup left in the text: HTML": 1}),
        ("A {| b |- c", {"markup left in the text: {|": 2}),
    ],
)
def test_what_is_left_out_or_left_over_is_counted(markup: str, noted: dict[str, int]) -> None:
    assert text_of(markup)[1] == noted


@pytest.mark.parametrize(
    "markup",
    [
        "<ref></b>\n" * 60_000,
        "{|\n" * 20_000,
        "-{" * 20_000,
        "a<sup>2</sup>" + "'" * 60_000,
        "x {{a|b}} " * 5_000,
        "x {{convert|" + "1" * 100_000 + "x|km}} y",
        "a" + " " * 100_000 + "{{a|b}}",
        "#a [[b]] " + "{{a}} " * 5_000,
    ],
)
def test_time_is_linear_in_what_is_never_closed(markup: str) -> None:
    start = time.process_time()
    read_paragraphs(markup)
    assert time.process_time() - start < 5  # quadratic, these take minutes
