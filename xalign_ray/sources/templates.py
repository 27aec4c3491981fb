"""Says which words of a MediaWiki template stand in the running text: by lists of names, and by a rule for all others.

The templates' own definitions are no way: they lie anywhere in a dump, whose parts are read apart from each other, and
most of those that hold words call Lua.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from xalign_ray.sources import measures
from xalign_ray.sources.html import BREAK, EMPTY, HOLE, LACKING, LEVEL, LOWERED, RAISED
from xalign_ray.sources.measures import Given

_Show = Callable[[Given], str]


def _first(given: Given) -> str:
    return given[0]


def _second(given: Given) -> str:
    return given[1] if len(given) > 1 else given.named("text") or given.named("texte")


def _last(given: Given) -> str:
    return given[-1] if len(given) > 1 else ""


def _all(given: Given) -> str:
    return " ".join(filter(None, given))


def _block(given: Given) -> str:
    return f"\n{given[0]}\n"


def _second_or_first(given: Given) -> str:
    return given[1] if len(given) > 1 and given[1] else given[0]


def _third_or_first(given: Given) -> str:
    """Chinese `le|local title|foreign title|label`."""
    return given.named("lt") or (given[2] if len(given) > 2 and given[2] else given[0])


def _last_of_four(given: Given) -> str:
    """Chinese `tsl|en|foreign title|local title|label`."""
    return next(filter(None, reversed(given[1:4])), "")


def _labelled(given: Given) -> str:
    return given.named("lt") or given[0]


def _around(pattern: str) -> _Show:
    """The first argument in its place in a pattern."""
    return lambda given: pattern.format(given[0]) if given[0] else ""


def _not_sayable(_: Given) -> str:
    return LACKING


def _note(given: Given) -> str:
    """`music|flat` is a flat; of times, keys and clefs nothing can be said."""
    return _NOTES.get(given[0].lower(), LACKING)


def _life(given: Given) -> str:
    """Chinese `bd|1893年|12月26日|1976年|9月9日` joins the days of birth and of death with a dash."""
    dates = filter(None, ("".join(given[:2]), "".join(given[2:4])))
    return "\uff0d".join(dates) if given[0].endswith("\u5e74") else ""


def _century(given: Given) -> str:
    """French `s|XIX` is XIXe siecle, `s|V|e|av. J.-C.` Ve siecle av. J.-C.; elsewhere `s` is a style."""
    return " ".join([f"{given[0]}e si\u00e8cle", *given[2:3]]) if _ROMAN.fullmatch(given[0]) else given[0]


def _era(given: Given) -> str:
    """Spanish `siglo|V|a` is siglo V a. C."""
    era = given[1] if len(given) > 1 else ""
    return f"siglo {given[0]}{_ERAS[era]}" if given[0] and era in _ERAS else ""


def _ship(navy: str) -> _Show:
    """`HMS|Hood` is HMS Hood, `HMS|Hood|51` HMS Hood (51); a third argument chooses other forms."""

    def show(given: Given) -> str:
        name, number, form = [*given, "", "", ""][:3]
        return "" if not name else f"{navy} {name} ({number})" if number and not form else f"{navy} {name}".strip()

    return show


def _nihongo(given: Given) -> str:
    """`nihongo|Tokyo|kanji|romaji` is Tokyo (kanji, romaji), and romaji (kanji) where the first is missing."""
    english, kanji, romaji = [*given[:3], "", "", ""][:3]
    head, *inside = [part for part in ((english, kanji, romaji) if english else (romaji, kanji)) if part] or [""]
    return f"{head} ({', '.join(inside)})" if inside else head


_NOTES = {
    **dict.fromkeys(["flat", "b", "\u266d"], "\u266d"),
    **dict.fromkeys(["sharp", "#", "\u266f"], "\u266f"),
    **dict.fromkeys(["natural", "\u266e"], "\u266e"),
}
_ERAS = {"": "", "d": " d. C.", "a": " a. C."}
_NAVIES = ("HMS", "HMAS", "HMCS", "USS", "USCGC", "SS", "RMS", "MS", "MV", "SMS", "HNLMS", "HDMS", "HSwMS", "ORP")
# fmt: off
# Quotations: inside a sentence they are part of it, on a line of their own a paragraph.
_QUOTATIONS = (
    "cita", "citazione", "citação", "citação2", "citaat", "citat", "citát", "cytat", "citacija", "citación", "citació",
    "citatul", "zitat-de", "zitat-en", "sitaatti", "sitat", "idézet", "al\u0131nt\u0131", "kutipan", "petikan",
    "trích dẫn", "παράθεμα", "цитата", "цытата", "цитат", "引用", "引文", "인용문", "اقتباس", "ציטוט", "उद्धरण",
)
# fmt: on
# By lower-case name. The templates of the larger Wikipedias whose loss leaves a hole in a sentence.
_WORDS: dict[str, _Show] = {
    **dict.fromkeys(
        ["nowrap", "nobr", "small", "smaller", "big", "sc", "smallcaps", "abbr", "tooltip", "nq", "angbr", "esd"],
        _first,
    ),
    **dict.fromkeys(["lang-grc-gre", "vr", "latin", "flag", "flagcountry", "flagu", "flag athlete"], _first),
    **dict.fromkeys(["citation needed span", "cn span", "clarify span", "sic", "number", "nts", "num"], _first),
    **dict.fromkeys(["souverain2", "\u0623\u0644\u0645\u0627\u0646\u064a\u0629", "karde\u015f \u015fehir"], _first),
    **dict.fromkeys(_QUOTATIONS, _first),
    **dict.fromkeys(["quote", "blockquote", "quotation", "bq", "cquote", "citation bloc", "zitat"], _block),
    '"': _around("\u201e{}\u201c"),
    "citation": _around("\u00ab {} \u00bb"),
    "incise": _around("\u2013 {} \u2013"),
    # Words in other languages and links to other wikis.
    **dict.fromkeys(["lang", "langue", "en langue", "langx", "script"], _second),
    "linktext": "".join,
    **dict.fromkeys(["transl", "translit", "transliteration"], _last),
    **dict.fromkeys(
        ["\u043d\u043f", "\u043d\u043f2", "\u043d\u043f3", "\u043d\u043f4", "\u043d\u043f5", "iw"], _second_or_first
    ),
    "ill": _labelled,
    "le": _third_or_first,
    **dict.fromkeys(["tsl", "wikt-lang"], _last_of_four),  # wikt-lang|en|word|label
    "bd": _life,
    "sortname": lambda given: " ".join(given[:2]),
    "nihongo": _nihongo,
    # Numbers, measures and dates.
    **dict.fromkeys(["convert", "cvt"], measures.measure),
    "val": measures.value,
    "height": measures.height,
    **dict.fromkeys(["unit\u00e9", "unite"], measures.unit_of_powers),
    **dict.fromkeys(["nombre", "tmp"], _all),
    **dict.fromkeys(["e", "esp", "x10^"], lambda given: measures.power_of_ten(given[0]) or LACKING),
    "10^": lambda given: measures.power_of_ten(given[0])[1:] or LACKING,
    **dict.fromkeys(["sqrt", "radic", "\u221a"], measures.root),
    **dict.fromkeys(["sup", "superscript", "exp", "exposant"], _around(f"{RAISED}{{}}{LEVEL}")),
    **dict.fromkeys(["sub", "subscript", "ind", "indice"], _around(f"{LOWERED}{{}}{LEVEL}")),
    "su": measures.above_and_below,
    **dict.fromkeys(["chem", "chem2", "fchim"], measures.formula_of),
    **dict.fromkeys(["frac", "sfrac", "fraction"], measures.fraction),
    **dict.fromkeys(
        ["date", "date-", "date de naissance", "date de naissance-", "date de d\u00e9c\u00e8s"], measures.day
    ),
    **dict.fromkeys(["start date", "end date", "birth date", "death date", "film date", "dts"], measures.english_date),
    **dict.fromkeys(["birth date and age", "death date and age", "start date and age", "bda"], measures.english_date),
    "as of": measures.as_of,
    **dict.fromkeys(["circa", "c.", "ca."], measures.circa),
    "heure": measures.hour,
    **dict.fromkeys(["s", "s-"], _century),
    "siglo": _era,
    "h\u00f6he": _around("{} m"),
    **dict.fromkeys(["euro", "\u20ac"], _around("{} \u20ac")),
    **dict.fromkeys(["us$", "usd", "usdollar"], _around("US${}")),
    **dict.fromkeys(["gbp", "\u00a3", "pound"], _around("\u00a3{}")),
    **dict.fromkeys(["inr", "\u20b9"], _around("\u20b9{}")),
    **dict.fromkeys(["jpy", "\u00a5", "yen"], _around("\u00a5{}")),
    **{name: _around(f"{name.upper()} {{}}") for name in ("isbn", "issn")},
    # Signs that show an argument, too.
    "music": _note,
    "prime": _around("{}\u2032"),
    "pprime": _around("{}\u2033"),
    # What these show is not what they are given.
    **dict.fromkeys(["degree", "deg", "overline", "vinculum", "inflation", "inflation-year"], _not_sayable),
    **dict.fromkeys(["hexadecimal", "octal", "binary", "roman", "ordinal", "nth", "spellnum", "numtext"], _not_sayable),
    **dict.fromkeys(["percent", "pct", "abs", "floor", "ceil", "gaps"], _not_sayable),
    # Lists and ships.
    "hlist": lambda given: " \u00b7 ".join(filter(None, given)),
    **dict.fromkeys(["ubl", "unbulleted list"], lambda given: BREAK.join(filter(None, given))),
    **dict.fromkeys(["plainlist", "flatlist"], _block),
    **{navy.lower(): _ship(navy) for navy in _NAVIES},
    "ship": lambda given: _ship(given[0])(given.behind()),
}
# What stands in the text where no argument is given.
_SIGNS: dict[str, str] = {
    "'": "'",
    "'s": "'s",
    "!": "|",
    "=": "=",
    **dict.fromkeys(["nbsp", "esd", "thinsp", "spaces", "space"], " "),
    **dict.fromkeys(["snd", "spnd", "spaced ndash", "spaced en dash", "\u2013"], " \u2013 "),
    **dict.fromkeys(["\\", "slash"], " / "),
    **dict.fromkeys(["pipe", "|"], " | "),
    **dict.fromkeys(["\u00b7", "\u2022", "dot", "bull", "middot"], " \u00b7 "),
    **dict.fromkeys(["ndash", "en dash", "endash", "nbndash"], "\u2013"),
    **dict.fromkeys(["mdash", "mdashb", "em dash", "emdash", "\u2014"], "\u2014"),
    "eqm": " = ",
    "times": "\u00d7",
    "minus": "\u2212",
    "pi": "\u03c0",
    **dict.fromkeys(["degree", "deg"], "\u00b0"),
    "prime": "\u2032",
    "pprime": "\u2033",
    "flat": "\u266d",
    "sharp": "\u266f",
    "natural": "\u266e",
    "okina": "\u02bb",
    "hamza": "\u02be",
    "ayin": "\u02bf",
    "half": f"{RAISED}1{LEVEL}/{LOWERED}2{LEVEL}",
    **{f"{a}/{b}": f"{RAISED}{a}{LEVEL}/{LOWERED}{b}{LEVEL}" for a, b in ("12", "13", "23", "14", "34")},
}
_ROMAN = re.compile(r"[IVXLC]+")
# French numbers that are the name of their own template (1re, 84e, Ier, XXe siecle).
_SELF = re.compile(r"(?:\d+|[IVXLC]+)(?:er|re|e|d|nd|nde)(?: si\u00e8cle)?")
_NUMERAL = re.compile(r"(?:\d+|[IVXLC]{2,}(?=[^\W\d_A-Z]))[^\W\d_]{1,4}")  # Breton XIIvet, Dutch 19de
_SOUNDS = re.compile(r"ipa(?P<pieces>c)?(-[a-z]{2,3}(-[a-z]+)?|-all)?|ipa link|ipalink|ipaslink|ipablink")
_OF_LANGUAGE = re.compile(r"(lang|link)-[a-z]{2,3}(-[a-z0-9]+)*")  # lang-de|Wort, link-en|word
_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": measures.as_written,
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
}
_TITLES = frozenset({"pagename", "fullpagename", "subjectpagename", "articlepagename", "basepagename"})

# fmt: off
# Templates that show a mark, a box or nothing whatever they are given, under the names that most wikis have copied.
_MARKS = frozenset({
    "r", "rp", "ref", "refn", "note", "notetag", "note label", "ref label", "cit", "citation needed", "cn", "fact",
    "source needed", "page needed", "clarify", "clarification needed", "who", "who?", "when", "when?", "where",
    "where?", "which", "which?", "by whom", "by whom?", "why", "why?", "how", "vague", "dn",
    "disambiguation needed", "dubious", "disputed inline", "better source", "better source needed", "verify source",
    "verify credibility", "verification needed", "failed verification", "unreliable source", "dead link",
    "webarchive", "full citation needed", "update inline", "update after", "flagicon", "flag icon", "flagdeco",
    "coord", "anchor", "main", "main article", "see", "see also", "further", "details", "about", "for",
    "other uses", "redirect", "hatnote", "audio", "listen", "pron", "pronunciation", "respell", "doi", "oclc",
    "pmid", "arxiv", "portal", "portal-inline", "commons", "commons category", "commonscat", "commons-inline",
    "wiktionary", "wikiquote", "wikisource", "stub", "cite", "short description", "reflist", "clear", "-", "0", "toc",
    "nowrap begin", "nowrap end", "nowrapbegin", "nowrapend", "wrap", "in lang", "subscription required",
    "registration required", "refnest", "inflation-fn",
})
_CITED = (
    "arxiv|av media|biorxiv|book|conference|court|dictionary|document|encyclopaedia|encyclopedia|episode|interview|"
    "journal|magazine|mailing list|map|news|newsgroup|paper|podcast|press release|report|serial|sign|speech|ssrn|"
    "techreport|thesis|tweet|video|video game|web|wikisource"
)
_MARK_FAMILIES = re.compile(
    rf"cite ({_CITED})|sfn(p|m|mp|ref)?|"
    r"harv(nb|txt|p|s|col|colnb|coltxt)?|harvard citation( no brackets| text)?|efn(-(ua|lr|la|ur|lg|ug))?|"
    r"use [a-z]+ (dates|english|spelling)|"
    r"[a-z]{2,3}[ -]icon|icon[ -][a-z]{2,3}|ref-[a-z]{2,3}|"  # of the language of a link
    r"(defaultsort|displaytitle|#tag):.*", re.S
)
# fmt: on
_NO_TEXT = re.compile(r"\S+://\S*|.*\.(jpe?g|png|svg|gif|tiff?|og[gav]|webm|mp3|wav|mid|pdf)", re.I | re.S)
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)*")  # of a language, if another argument is the word
_SENTENCE = re.compile(r"[^\n=|]{39,}[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\u06d4][\"'\u201c\u201d\u00bb\u300d)]*")


def plain_name(written: str) -> str:
    """A template's name without blanks around it, underscores, and its namespace."""
    return written.strip().replace("_", " ").removeprefix("Template:").removeprefix("template:")


def is_mark(name: str) -> bool:
    """Whether a template is a footnote, flag, box or the like: no word is missing where it stands."""
    lowered = name.lower()
    return lowered in _MARKS or bool(_MARK_FAMILIES.fullmatch(lowered))


def words_of_template(name: str, given: Given, title: str = "") -> str | None:
    """What a template that a list knows shows; empty if it cannot be said, None for one that no list knows.

    Args:
      name: as plain_name returns it, with what is rendered of an argument in it (`formatnum:5`).
      given: its arguments.
      title: the page's.
    """
    lowered = name.lower()
    show = _WORDS.get(lowered) or (_first if _OF_LANGUAGE.fullmatch(lowered) else None)
    if show is measures.value and given and not any(map(str.isdigit, given[0])):
        return None  # another template of this name: `val|de|Berlin` in Latvian
    sign = _SIGNS.get(lowered, "")
    if show or (sign and not (sign.strip() and any(given))):  # only blanks are given a number: `spaces|5`
        return show(given) if show and (given or show in (measures.height, measures.above_and_below)) else sign
    if _SELF.fullmatch(name):
        return " ".join([name, *given[:1]])
    if lowered in _TITLES:
        return title
    function, colon, argument = name.partition(":")
    if colon and (change := _FUNCTIONS.get(function.strip().lower())):
        return change(argument.strip())
    return None


def pronunciation(name: str, given: Given) -> str | None:
    """The sounds that an IPA template is given, empty where they cannot be said; None for any other template."""
    if not (kind := _SOUNDS.fullmatch(name.lower())):
        return None
    sounds = [text for text in given if text and EMPTY not in text]
    if kind["pieces"]:
        return "".join(sounds)
    return sounds[1] if len(sounds) > 1 and _CODE.fullmatch(sounds[0]) else next(iter(sounds), "")


def running_text(name: str, given: Given) -> str:
    """The first argument of a template that can stand in a sentence: no URL, file, language code or text of many lines.

    Empty for parser functions, for several texts that may all be codes (`xyz|en|cat`), and for numbers that may be part
    of a measure. A number that is the name of its own template, `19th`, is shown, too.
    """
    if not name or ":" in name or "#" in name:
        return ""
    if not given and not given.names and _NUMERAL.fullmatch(name):
        return name
    texts = [text.replace(EMPTY, HOLE) for text in given if _is_text(text)]
    place = next((at for at, text in enumerate(texts) if not _CODE.fullmatch(text)), 0)
    if not texts or (len(texts) > 1 and all(map(_CODE.fullmatch, texts))):
        return ""
    text, others = texts[place], texts[place + 1 :]
    if measures.is_number(text):
        return measures.unlisted_number(name, given) if text == given[0] else ""
    return "" if text[0].isdigit() and any(map(str.isdigit, "".join(others))) else text


def is_sentence(text: str) -> bool:
    """Whether a template that stands alone was given running text, as quotations are."""
    return bool(_SENTENCE.fullmatch(text))


def _is_text(value: str) -> bool:
    return (
        any(map(str.isalnum, value))
        and not (EMPTY in value and value[0].isdigit())
        and "\n" not in value
        and BREAK not in value
        and "=" not in value
        and not _NO_TEXT.fullmatch(value)
    )
