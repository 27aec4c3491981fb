"""Says what MediaWiki's templates of numbers, measures and dates show: all of a number, or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

from xalign_ray.sources.html import EMPTY, LACKING, LEVEL, LOWERED, RAISED


class Given(list[str]):
    """The positional arguments of a template, stripped; named ones are rendered when they are asked for.

    Args:
      values: argument 1 and so on.
      named: the argument of a name, or nothing.
      language: the wiki's.
      names: how many named arguments there are.
    """

    def __init__(self, values: list[str], named: Callable[[str], str], language: str, names: int = 0) -> None:
        super().__init__(values)
        self.named = named
        self.language = language
        self.names = names

    def behind(self) -> Given:
        """Without the first argument."""
        return Given(self[1:], self.named, self.language, self.names)


_AMOUNT = re.compile(
    r"(?P<sign>[-\u2212+~]?)(?P<number>\d[\d., \u00a0\u202f']*(?:[-\u2013]\d[\d.,]*)?|[.,]\d+)"
    r"(?:[eE](?P<power>[-\u2212+]?\d+))?(?:\+(?P<rest>\d+)//?(?P<below>\d+)|//?(?P<denominator>\d+))?"
)
_ROMAN = re.compile(r"[IVX]+|[IVXLC]{2,}")
_DAY = re.compile(r"(\d{1,2}(er|\.)?)?")
_POWER = re.compile(r"(?<=[A-Za-z\u00b5\u03a9])([-\u2212]?\d)(?![\w])")  # m2, s-1
# fmt: off
_BETWEEN = {
    "to": " to ", "-": "\u2013", "\u2013": "\u2013", "and": " and ", "or": " or ", "by": " by ", "x": " \u00d7 ",
    "xx": " \u00d7 ", "\u00d7": " \u00d7 ", "*": " \u00d7 ", "+/-": " \u00b1 ", "\u00b1": " \u00b1 ", "+": " + ",
    "to(-)": " to ", "and(-)": " and ", "or(-)": " or ", "to about": " to about ", ",": ", ", "/": "/",
    "\u00e0": " \u00e0 ", "et": " et ", "ou": " ou ", "a": " a ", "y": " y ", "o": " o ", "bis": " bis ",
    "und": " und ", "oder": " oder ",
}
_ENGLISH = frozenset({"to", "and", "or", "by", "to(-)", "and(-)", "or(-)", "to about"})
_UNITS = {
    "C": "\u00b0C", "F": "\u00b0F", "degC": "\u00b0C", "degF": "\u00b0F", "C-change": "\u00b0C", "F-change": "\u00b0F",
    "sqkm": "km\u00b2", "sqm": "m\u00b2",
    "sqmi": "sq mi", "sqft": "sq ft", "sqyd": "sq yd", "sqin": "sq in", "cuft": "cu ft", "cuin": "cu in",
    "cuyd": "cu yd", "cumi": "cu mi", "cum": "m\u00b3", "USgal": "US gal", "impgal": "imp gal", "kph": "km/h",
    "kmh": "km/h", "/sqkm": "/km\u00b2", "/sqmi": "/sq mi", "lbf.ft": "lbf\u00b7ft",
}
_PLURALS = {"acre": "acres", "LT": "long tons", "ST": "short tons", "metre": "metres", "meter": "meters"}
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)
# Short names of units under which templates of any wiki are given a number.
_SHORT_UNITS = frozenset({
    "m", "km", "cm", "mm", "nm", "ft", "in", "mi", "yd", "nmi", "g", "kg", "mg", "t", "lb", "oz", "st", "l", "L", "ml",
    "ha", "C", "F", "C-change", "F-change",
    "m2", "m\u00b2", "km2", "km\u00b2", "m3", "m\u00b3", "%", "\u00b0C", "\u00b0F", "K", "m/s", "km/h",
    "mph", "Hz", "kHz", "MHz", "GHz", "V", "A", "W", "kW", "MW", "Pa", "hPa", "kPa", "bar", "J", "kJ", "eV", "\u043c",
    "\u043a\u043c", "\u0441\u043c", "\u043c\u043c", "\u043a\u0433", "\u0433", "\u0442", "\u0433\u0430",
    "\u043a\u043c\u00b2", "\u043c\u00b2",
})
# fmt: on


def amount(value: str) -> str:
    """A number as a reader sees it (`5+1/2` is 5 1/2, `3e8` is 3 x 10^8); empty for what is none."""
    found = _AMOUNT.fullmatch(value)
    if not found:
        return ""
    power = power_of_ten(found["power"]) if found["power"] else ""
    number = found["number"].strip()
    if found["denominator"]:
        return f"{found['sign']}{number}/{found['denominator']}"
    return f"{found['sign']}{number}{power}" + (f" {found['rest']}/{found['below']}" if found["below"] else "")


def as_written(value: str) -> str:
    """The argument of `formatnum`, which changes the form of digits only; empty where a part of it is missing."""
    return value if any(map(str.isdigit, value)) and EMPTY not in value else ""


def is_number(value: str) -> bool:
    """Whether a value is a number and nothing else, in digits or Roman."""
    return bool(amount(value) or _ROMAN.fullmatch(value))


def power_of_ten(exponent: str) -> str:
    """`6` is x10^6."""
    return f"\u00d710{RAISED}{exponent}{LEVEL}" if re.fullmatch(r"[-\u2212+]?\d+", exponent) else ""


def unit(name: str, is_single: bool = False) -> str:
    """What a unit's code shows: m2 is m with a raised 2, C is degrees Celsius."""
    if plural := _PLURALS.get(name):
        return plural.removesuffix("s") if is_single else plural
    return _UNITS.get(name) or _powers(name)


def _powers(name: str) -> str:
    return _POWER.sub(rf"{RAISED}\1{LEVEL}", name)


def unlisted_number(name: str, given: Given) -> str:
    """What can be believed of a number that a template of no list is given: alone, with a unit, or as a date.

    Empty where it may be part of more: a sum (`age|1990|5`), a currency (`USD|5`), an identifier (`DNB|457036427`).
    """
    others = [one for one in given[1:] if one]
    if not others and (given.named("u") or given.named("ul")):  # Italian `M|5|ul=km`
        return value(given)
    if not any(map(str.isdigit, "".join(others))) and _ROMAN.fullmatch(given[0]):
        return given[0]
    if not others:
        return "" if name.isupper() or given.names else given[0]
    if len(given) == 3 and _DAY.fullmatch(given[0]) and given[1].isalpha() and re.fullmatch(r"\d{3,4}", given[2]):
        return " ".join(given)
    units = [one for one in others if not amount(one) and one not in _BETWEEN]
    # `convertir|10|km|mi|0` and `conversie|197|km|0`: what it is converted to, and to how many digits.
    is_converted = len(given) > 2 and given[1] in _SHORT_UNITS and given[2] in (*_SHORT_UNITS, "0")
    if units and units[0] in _SHORT_UNITS and (is_converted or not amount(given[-1])):
        return measure(given)
    return ""


def measure(given: Given) -> str:
    """`convert|5|km|mi` is 5 km, `convert|6|ft|2|in|m` 6 ft 2 in, `convert|3|x|4|m` 3 x 4 m: what is measured, whole.

    What it is converted to is left out.
    """
    text, at = "", 0
    if given.named("disp") == "unit":
        return ""
    one_of_many = given.named("adj") == "on"  # a 40 acre ranch
    while at + 1 < len(given) and (number := amount(given[at])):
        name = given[at + 1]
        if joined := _between(name, given.language):
            text, at = f"{text}{number}{joined}", at + 2
            continue
        if not name or amount(name) or name in _BETWEEN:
            return ""
        if times := re.fullmatch(r"e(\d+)(\D.*)", name):  # e6acre
            number, name = number + power_of_ten(times[1]), times[2]
        text, at = f"{text}{number} {unit(name, one_of_many or number == '1')}", at + 2
        behind = given[at : at + 2]
        if len(behind) == 2 and amount(behind[0]) and behind[1] and not amount(behind[1]):
            text += " "  # 6 ft 2 in
        elif len(behind) == 2 and amount(behind[1]) and (joined := _between(behind[0], given.language)):
            text, at = text + joined, at + 1  # 1 ft x 2 ft
        else:
            return text
    return ""


def _between(word: str, language: str) -> str:
    if language != "en" and word in _ENGLISH:  # a wiki shows these in its own language
        return "\u2013" if word.startswith("to") else ""
    return _BETWEEN.get(word, "")


def value(given: Given) -> str:
    """`val|3|0.2|e=8|u=m/s`: a number with its error, power of ten and unit."""
    numbers = [amount(one) for one in given]
    if not given or not numbers[0]:
        return ""
    text = numbers[0]
    if len(given) == 2 and re.fullmatch(r"\([\d.]+\)", given[1]):
        text += given[1]
    elif len(given) == 2 and numbers[1]:
        text += f"\u00b1{numbers[1]}"
    elif len(given) == 3 and numbers[1] and numbers[2]:
        text += f" +{numbers[1].lstrip('+')} \u2212{numbers[2].lstrip('-' + chr(0x2212))}"
    elif len(given) == 3 and numbers[2] and _between(given[1], given.language):
        text += _between(given[1], given.language) + numbers[2]
    elif len(given) > 1:
        return ""
    if exponent := given.named("e"):
        text = (f"({text})" if len(given) == 3 or "\u00b1" in text else text) + power_of_ten(exponent)
    named = given.named("u") or given.named("ul")
    below = given.named("up") or given.named("upl")
    shown = _powers(named) + (f"/{_powers(below)}" if below else "")
    return given.named("p") + text + (f" {shown}" if shown else "") + given.named("s")


def height(given: Given) -> str:
    """`height|ft=6|in=2` is 6 ft 2 in, `height|m=1.85` 1.85 m."""
    units = [(amount(number), name) for name in ("m", "cm", "ft", "in") if (number := given.named(name))]
    if given.named("frac") or not all(number for number, _ in units):
        return ""
    return " ".join(f"{number} {name}" for number, name in units)


def unit_of_powers(given: Given) -> str:
    """French `unite|9|km|2` is 9 km^2, `unite|5|m|2|s|-1` 5 m^2 s^-1: a value, then units with their exponents."""
    if len(given) == 1 and not given.names:
        return given[0]  # 5,2 per mille
    at, text = 1, amount(given[0]) or (given[0] if LEVEL in given[0] or any(map(str.isalpha, given[0])) else "")
    while at + 1 < len(given) and text and (joined := _between(given[at], given.language)) and amount(given[at + 1]):
        text, at = text + joined + amount(given[at + 1]), at + 2
    if exponent := given.named("e"):
        text += power_of_ten(exponent)
    while at < len(given) and text:
        if amount(given[at]):
            return ""
        exponent = given[at + 1] if at + 1 < len(given) else ""
        raised = bool(re.fullmatch(r"[-\u2212]?\d+", exponent))
        if given[at]:
            text += f" {unit(given[at])}" + (f"{RAISED}{exponent}{LEVEL}" if raised else "")
        at += 2 if raised or not exponent else 1
    return text


def fraction(given: Given) -> str:
    """`frac|3` is 1/3, `frac|1|3` too, `frac|2|1|3` 2 1/3; behind a digit a blank stands before it."""
    if len(given) > 3 or not all(given):
        return LACKING
    above, below = ["1", *given][-2:]
    whole = f"{given[0]} " if len(given) == 3 else ""
    return f"{whole}{RAISED}{above}{LEVEL}/{LOWERED}{below}{LEVEL}"


def root(given: Given) -> str:
    """`sqrt|2` is √2, `sqrt|a + b` √(a + b); of other roots than the square one nothing can be said."""
    if not given[0] or any(given[1:]):
        return LACKING
    return f"\u221a{given[0]}" if given[0].isalnum() else f"\u221a({given[0]})"


def hour(given: Given) -> str:
    """French `heure|12|30|5` is 12 h 30 min 5 s."""
    if len(given) > 3 or not all(amount(one) for one in given if one) or not given[0]:
        return ""
    if len(given) == 3:
        return f"{given[0]} h {given[1]} min {given[2]} s"
    return f"{given[0]} h {''.join(given[1:])}".strip()


def day(given: Given) -> str:
    """`date|11|novembre|1866|en musique` is 11 novembre 1866; months that are written as numbers have other orders."""
    if any(map(str.isalpha, given[0])) and any(map(str.isdigit, given[0])) and len(given) == 1:
        return given[0]  # 11 novembre 1866
    dated = given[:3]
    if len(dated) > 1 and _DAY.fullmatch(dated[0]) and dated[1] and not any(map(str.isdigit, dated[1])):
        return " ".join(filter(None, dated))
    return given[0] if len(given) == 1 and is_number(given[0]) else ""


def english_date(given: Given) -> str:
    """`start date|2010|5|1` is May 1, 2010, and 1 May 2010 with df=y. Other wikis show their own months."""
    dated = given[:3]
    if given.language != "en" or not dated or not all(map(str.isdecimal, filter(None, dated))):
        return dated[0] if len(given) == 1 and dated[0].isdecimal() else ""
    if any(given[3:6]) and len(given) < 6:  # a time of day
        return ""
    year, month, number = [*dated, "", ""][:3]
    if not month:
        return year
    if not 1 <= int(month) <= 12:
        return ""
    name = _MONTHS[int(month) - 1]
    if not number:
        return f"{name} {year}"
    first = given.named("df") or given.named("dmy")
    return f"{int(number)} {name} {year}" if first else f"{name} {int(number)}, {year}"


def as_of(given: Given) -> str:
    """`as of|2009|5` is As of May 2009, and as of with lc=y."""
    if shown := given.named("alt"):
        return shown
    if given.language != "en":
        return ""
    word = "Since" if given.named("since") else "As of"
    dated = [*given[:3], "", ""][:3]
    if dated[1].isdecimal():
        if not 1 <= int(dated[1]) <= 12:
            return ""
        dated[1] = _MONTHS[int(dated[1]) - 1]
    if not dated[0]:
        return ""
    return f"{word.lower() if given.named('lc') else word} {' '.join(filter(None, reversed(dated)))}"


def above_and_below(given: Given) -> str:
    """`su|p=6|b=2`: what is raised and what is lowered."""
    raised, lowered = given.named("p"), given.named("b")
    return (f"{LOWERED}{lowered}{LEVEL}" if lowered else "") + (f"{RAISED}{raised}{LEVEL}" if raised else "")


def circa(given: Given) -> str:
    """`circa|1490|1500` is c. 1490 to c. 1500."""
    return " \u2013 ".join(f"c. {year}" for year in given[:2] if year)


def formula_of(given: Given) -> str:
    """`chem|SO|4|2-` is SO4 with a raised charge."""
    charge = re.fullmatch(r"\d*[-+\u2212]", given[-1])
    return "".join(given[:-1]) + f"{RAISED}{given[-1]}{LEVEL}" if charge else "".join(given)
