"""Texts in three languages, and writers of every form of pairs, for tests of looking at them."""

from __future__ import annotations

import csv
import io
import tarfile
import zipfile
from pathlib import Path

import openpyxl
import polib
import pyarrow
from pyarrow import parquet

EN = [
    "The house on the hill has been empty for many years.", "She reads the newspaper every morning, with coffee.",
    "We will meet again at the station tomorrow evening.", "The children are playing football in the garden.",
    "Nobody knows where the old man went last winter.", "This book was written by a doctor from London.",
    'He said "good night" and closed the door.', "The weather is much better than it was yesterday.",
]  # fmt: skip
DE = [
    "Das Haus auf dem Hügel steht seit vielen Jahren leer.", "Sie liest jeden Morgen die Zeitung, mit Kaffee.",
    "Wir treffen uns morgen Abend wieder am Bahnhof.", "Die Kinder spielen im Garten Fußball.",
    "Niemand weiß, wohin der alte Mann letzten Winter ging.", "Das Buch wurde von einem Arzt aus London geschrieben.",
    'Er sagte „gute Nacht" und schloss die Tür.', "Das Wetter ist viel besser, als es gestern war.",
]  # fmt: skip
FR = [
    "La maison sur la colline est vide depuis de nombreuses années.", "Elle lit le journal chaque matin, avec un café.",
    "Nous nous reverrons demain soir à la gare.", "Les enfants jouent au football dans le jardin.",
    "Personne ne sait où le vieil homme est allé l'hiver dernier.", "Ce livre a été écrit par un médecin de Londres.",
    "Il a dit bonne nuit et il a fermé la porte.", "Le temps est bien meilleur qu'il ne l'était hier.",
]  # fmt: skip
PAIRS = list(zip(EN, DE, strict=True))
Rows = list[tuple[str, ...]]


def table(names: str, *columns: list[str]) -> Rows:
    return [tuple(names.split(",")), *zip(*columns, strict=True)] if names else list(zip(*columns, strict=True))


def csv_text(rows: Rows, **dialect: str) -> str:
    out = io.StringIO()
    csv.writer(out, **{"lineterminator": "\n"} | dialect).writerows(rows)
    return out.getvalue()


def tsv_text(rows: Rows) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def tmx_text(units: list[dict[str, str]]) -> str:
    def variant(code: str, text: str) -> str:
        return f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'

    body = "".join(f"<tu>{''.join(variant(*one) for one in unit.items())}</tu>\n" for unit in units)
    return f'<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>{body}</body></tmx>\n'


def write_parquet(path: Path, columns: dict[str, list], group: int = 3) -> None:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group)


def write_texts(folder: Path, **files: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name.replace("__", "-").replace("_", ".")).write_text("\n".join(lines) + "\n", encoding="utf-8")


def zipped(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarred(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def workbook(rows: Rows) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def po_text(pairs: list[tuple[str, str]], **header: str) -> str:
    file = polib.POFile()
    file.metadata = {name.replace("_", "-"): value for name, value in header.items()}
    file.extend(polib.POEntry(msgid=text, msgstr=translation) for text, translation in pairs)
    return str(file)


def xliff_text(units: list[str], attributes: str = 'source-language="en" target-language="de"') -> str:
    body = "".join(f"<trans-unit id='{n}'>{unit}</trans-unit>\n" for n, unit in enumerate(units))
    file = f"<file original='a' datatype='x' {attributes}><body>{body}</body></file>"
    return f'<?xml version="1.0"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">{file}</xliff>\n'


def xliff2_text(segments: list[str]) -> str:
    body = "".join(f"<unit id='{n}'><segment>{segment}</segment></unit>\n" for n, segment in enumerate(segments))
    names = 'xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en-US" trgLang="de"'
    return f"<xliff {names}><file id='f'>{body}</file></xliff>\n"


def both(source: str, target: str) -> str:
    return f"<source>{source}</source><target>{target}</target>"


IDS = [f"doc{n:04d}" for n in range(8)]
SCORES = [f"0.{n}1" for n in range(8)]
