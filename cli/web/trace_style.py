"""What a page of a trace adds to the style of all pages."""

TRACE_STYLE = """
:root{--s0:#2f6fb0;--s1:#d1711b;--s2:#2b8a66;--s3:#a8508a;--s4:#b59a00;--s5:#4aa5c4;--s6:#b5483a;--s7:#6c5fb5;
--other:#8a939d;--track:#edf0f4;--high:#c0221f;--medium:#a86500;--low:#0b6a86;--note:#59636e}
@media screen and (prefers-color-scheme:dark){
:root{--s0:#6ba4de;--s1:#e9954a;--s2:#56bb93;--s3:#d084b6;--s4:#d6bf45;--s5:#74c6e2;--s6:#e37f72;--s7:#9f94e4;
--other:#7b858f;--track:#21282f;--high:#ff7b72;--medium:#e0a84e;--low:#56bcd8;--note:#97a1ac}}
svg .s0{fill:var(--s0)}svg .s1{fill:var(--s1)}svg .s2{fill:var(--s2)}svg .s3{fill:var(--s3)}
svg .s4{fill:var(--s4)}svg .s5{fill:var(--s5)}svg .s6{fill:var(--s6)}svg .s7{fill:var(--s7)}
svg .other{fill:var(--other)}
svg .track{fill:var(--track)}
svg .plot{fill:var(--soft)}
svg .grid{fill:none;stroke:var(--line)}
svg .roof{fill:none;stroke:var(--dim);stroke-width:1.5;stroke-dasharray:5 4}
svg .dot{fill-opacity:.72;stroke:var(--paper);stroke-width:1}
svg .cell{shape-rendering:crispEdges}
svg .series:hover{fill-opacity:1;stroke:var(--ink);stroke-width:1}
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
.numbers{font-size:.86rem}
.numbers.few{width:auto}
.numbers td,.numbers th{white-space:nowrap;padding:.25rem .9rem .25rem 0}
.numbers td.number,.numbers th.number{text-align:right;font-variant-numeric:tabular-nums}
.numbers td.long{white-space:normal;overflow-wrap:anywhere;min-width:12rem;max-width:26rem}
.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.key div{background:var(--soft);border-radius:6px;padding:.5rem .8rem}
.key b{display:block;font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}
.key span{color:var(--dim);font-size:.85rem}
""".strip()
