"""Names and values that have a meaning to some layer below: quotes, escapes, variables, patterns, other alphabets.

One list for all tests. A system either carries each of them by value or flowctl refuses it by name.
"""

from __future__ import annotations

import unicodedata

#: What can stand in a name and in a value alike.
TEXTS: dict[str, str] = {
    "variable": "${x}",
    "variable of the environment": "${env:HOME}",
    "variable of Spark": "${spark:spark.app.name}",
    "variable of the system": "${system:user.name}",
    "variable of Hive": "${hiveconf:spark.app.name}",
    "template": "{{ vars.x }}",
    "statement": "{% raw %}",
    "single quote": "it's",
    "two single quotes": "''",
    "double quote": 'a "b" c',
    "backtick": "a`b``c",
    "backslash": "a\\b",
    "backslash at the end": "a\\",
    "escapes": "\\n\\t\\u0041\\101\\0\\%\\_",
    "escaped quote": "\\'",
    "percent": "100%25 %s %(x)s",
    "pattern": "a[b]{c}*?",
    "dots": "a.b..c",
    "slash": "a/b",
    "comment": "a -- b /* c */",
    "statement end": "a; DROP TABLE t",
    "newline": "a\nb",
    "carriage return": "a\r\nb",
    "tab": "a\tb",
    "space at both ends": " a ",
    "emoji": "😀",
    "right to left": "שלום\u202e",
    "composed": unicodedata.normalize("NFC", "é"),
    "decomposed": unicodedata.normalize("NFD", "é"),
    "upper case": "ABC",
    "lower case": "abc",
    "reserved word": "select",
    "sidecar": "x__observed",
    "comma": "a,b",
    "equals": "a=b",
    "colon": "a:b",
    "question mark": "a?b",
    "hash": "a#b",
    "63 bytes": "n" * 63,
    "255 bytes": "n" * 255,
}
#: Only values: names of no system hold a NUL, and an empty one names nothing.
VALUES: dict[str, str] = {**TEXTS, "empty": "", "NUL": "a\x00b", "only spaces": "  "}
