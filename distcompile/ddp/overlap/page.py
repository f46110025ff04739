"""The frame of our HTML reports: one style sheet, light and dark, nothing fetched.

In: a title and pieces of HTML. Out: a complete document. Shared by the overlap and the parity report.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

STYLE = """
:root{--ink:#1d2733;--soft:#64748b;--line:#dde3ea;--ground:#f7f9fb;--panel:#fff;--good:#1f8a55;--bad:#c62f2f;--warn:#a86a00}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#93a1b3;--line:#2c3643;--ground:#12171e;--panel:#1a212a;
--good:#4cc38a;--bad:#ff7b72;--warn:#e3b341}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1200px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:15px;margin:30px 0 8px}
.lead{color:var(--soft);margin:0 0 18px}.small,small{color:var(--soft);font-size:12px}
.cards{display:flex;gap:12px;flex-wrap:wrap}
.card{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 16px;min-width:150px;flex:1}
.card span{color:var(--soft);display:block}.card b{font-size:22px;font-weight:600;display:block}
.wide{overflow-x:auto;background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:500;text-align:left;white-space:nowrap}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--line)}tr:last-child td{border-bottom:0}
td{white-space:nowrap}td:last-child{white-space:normal;min-width:180px}
.bar{display:flex;width:150px;height:8px;margin:2px 0}.bar i{display:block;height:100%;min-width:0}
.legend{margin:0 0 6px;display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:12.5px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}.warn{color:var(--warn)}
details{margin-top:26px;color:var(--soft)}summary{cursor:pointer}
.history{width:auto}.history td{border:0;padding:3px 14px 3px 0}
.spark{display:block;border-bottom:1px solid var(--line)}
pre{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:12px 14px;
overflow-x:auto;font-size:12.5px}
svg{width:100%;height:auto;display:block;font-family:inherit}svg.spark{width:auto}
svg text{fill:var(--ink);font-size:11px}svg .tick{fill:var(--soft);text-anchor:middle}
svg .grid{stroke:var(--line)}svg .rank{font-weight:600;font-size:12.5px}svg .small{fill:var(--soft);font-size:10.5px}
svg .lane{fill:var(--soft);font-size:9.5px;text-anchor:end}svg .in{fill:#fff;text-anchor:middle;font-size:10.5px}
svg .end{stroke:var(--ink);stroke-dasharray:3 3;opacity:.7}
"""


def document(title: str, body: Iterable[str]) -> str:
    """A page of these pieces."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )
