"""What a page of a trace adds to the style of all pages."""

TRACE_STYLE = """
:root{--s0:#2f6fb0;--s1:#d1711b;--s2:#2b8a66;--s3:#a8508a;--s4:#b59a00;--s5:#4aa5c4;--s6:#b5483a;--s7:#6c5fb5;
--other:#8a939d;--track:#edf0f4}
@media screen and (prefers-color-scheme:dark){
:root{--s0:#6ba4de;--s1:#e9954a;--s2:#56bb93;--s3:#d084b6;--s4:#d6bf45;--s5:#74c6e2;--s6:#e37f72;--s7:#9f94e4;
--other:#7b858f;--track:#21282f}}
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
.numbers{font-size:.86rem}
.numbers.few{width:auto}
.numbers td,.numbers th{white-space:nowrap;padding:.25rem .9rem .25rem 0}
.numbers td.number,.numbers th.number{text-align:right;font-variant-numeric:tabular-nums}
.numbers td.long{white-space:normal;overflow-wrap:anywhere;min-width:12rem;max-width:26rem}
""".strip()
