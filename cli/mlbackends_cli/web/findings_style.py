"""What a page with findings adds to the style of all pages: findings by severity, and numbers in boxes."""

FINDINGS_STYLE = """
:root{--high:#c0221f;--medium:#a86500;--low:#0b6a86;--note:#59636e}
@media screen and (prefers-color-scheme:dark){
:root{--high:#ff7b72;--medium:#e0a84e;--low:#56bcd8;--note:#97a1ac}}
.severity{display:inline-block;font-size:.8rem;padding:0 .5rem;border:1px solid currentColor;
border-radius:1rem;margin-right:.5rem;min-width:4.4rem;text-align:center}
.high{color:var(--high)}.medium{color:var(--medium)}.low{color:var(--low)}.note{color:var(--note)}
.findings{list-style:none;margin:0;padding:0}
.findings>li{margin:.6rem 0;padding:.6rem .9rem;background:var(--soft);border-left:4px solid var(--line);
border-radius:0 4px 4px 0}
.findings>li.is-high{border-color:var(--high)}.findings>li.is-medium{border-color:var(--medium)}
.findings>li.is-low{border-color:var(--low)}
.findings p{margin:.25rem 0 0}
.findings details,.refused{border:0;margin:.2rem 0 0}
.findings summary{padding:0;color:var(--dim);font-size:.88rem}
.findings summary::before{content:"▸"}
.findings details[open]>summary::before{content:"▾"}
.findings summary:hover,.findings details[open]>summary{background:none}
.findings pre{margin:.3rem 0 0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;line-height:1.4}
.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.key div{background:var(--soft);border-radius:6px;padding:.5rem .8rem}
.key b{display:block;font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}
.key span{color:var(--dim);font-size:.85rem}
""".strip()
