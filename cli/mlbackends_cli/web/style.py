"""How a page looks, and the little that it does; nothing is fetched, and it reads without the script."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2128;--dim:#59636e;--line:#d5dae0;--soft:#f3f5f8;
--link:#0b5cad;--usable:#14773a;--loadable:#0b6a86;--found:#8a6100;--broken:#c0221f;--unknown:#c0221f;
--absent:#6b7480;--core:#4a7ab8;--small-core:#93b4dc;--cache:#dfd4ee;--memory:#cfe5d4;--frame:#eef1f5;
--node:#fff;--card:#fff;--wire:#8c959f;--nvlink:#5f9e1a;--part:#e3ecd6;--warn:#fff6df;--warn-line:#d9a400}
@media screen and (prefers-color-scheme:dark){
:root{--paper:#14181d;--ink:#e2e7ec;--dim:#97a1ac;--line:#353c45;
--soft:#1d232a;--link:#75b4f2;--usable:#57c47e;--loadable:#56bcd8;--found:#dba93a;--broken:#ff7b72;
--unknown:#ff7b72;--absent:#8b949e;--core:#6a9bdb;--small-core:#41618c;--cache:#3f3555;--memory:#27432f;
--frame:#1d232a;--node:#14181d;--card:#14181d;--wire:#6e7781;--nvlink:#8fcf3c;--part:#31401f;
--warn:#2b2410;--warn-line:#b98c12}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2.5rem) 3rem;max-width:76rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.55rem;line-height:1.25;margin:.2rem 0}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.1rem 0 .3rem}
p{margin:.3rem 0}
a{color:var(--link);text-decoration:none}
a:hover{text-decoration:underline}
code{font:.88em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
overflow-wrap:anywhere}
.dim{color:var(--dim)}
.sub{color:var(--dim);margin-bottom:1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere}
th{font-weight:600;white-space:nowrap}
thead th{color:var(--dim);font-size:.82rem;font-weight:600}
tbody tr:last-child>*{border-bottom:0}
td.version{white-space:nowrap}
.stack td:last-child{width:100%}
.wide{overflow-x:auto}
.wide td,.wide th{overflow-wrap:normal}
.badge{display:inline-block;min-width:5.4rem;font-size:.8rem;line-height:1.5;padding:0 .5rem;
border:1px solid currentColor;border-radius:1rem;white-space:nowrap;text-align:center}
.usable{color:var(--usable)}.loadable{color:var(--loadable)}.found{color:var(--found)}
.broken{color:var(--broken)}.unknown{color:var(--unknown)}.absent{color:var(--absent)}
.warnings{list-style:none;margin:0;padding:0}
.warnings li{margin:.5rem 0;padding:.5rem .8rem;background:var(--warn);border-left:4px solid var(--warn-line);
border-radius:0 4px 4px 0}
.hint{color:var(--dim)}
.hint::before{content:"→ "}
.reasons{margin:.3rem 0;padding-left:1.1rem}
input[type=search]{font:inherit;width:100%;max-width:24rem;margin:.2rem 0 .6rem;padding:.35rem .7rem;
color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:6px}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0}
details[open]{padding-bottom:.5rem}
summary{cursor:pointer;padding:.4rem .7rem;display:flex;flex-wrap:wrap;gap:.1rem .7rem;align-items:baseline}
summary:hover,details[open]>summary{background:var(--soft)}
summary .badge{flex:none}
.inside{padding:0 .9rem}
.facts th{font-weight:400;width:1%}
.facts td{min-width:9rem}
.facts .about{color:var(--dim);font-size:.85rem;width:42%}
.copy{border-left:3px solid var(--line);padding-left:.8rem;margin:.8rem 0}
figure{margin:1rem 0}
svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
svg text{fill:var(--ink)}
svg .bold{font-weight:600;font-size:12.5px}
svg .small{font-size:11px}
svg .tiny{font-size:9.5px}
svg .frame{fill:var(--frame);stroke:var(--line)}
svg .node{fill:var(--node);stroke:var(--line)}
svg .core{fill:var(--core)}svg .small-core{fill:var(--small-core)}
svg .thread{fill:none;stroke:var(--core)}
svg .cut{stroke:var(--node);fill:none}
svg .cache{fill:var(--cache)}svg .memory{fill:var(--memory)}
svg .card{fill:var(--card);stroke:currentColor;stroke-width:1.5}
svg .part{fill:var(--part)}
svg .wire{fill:none;stroke:var(--wire);stroke-width:1.5}
svg .link{fill:none;stroke:var(--nvlink)}
svg .switch{fill:var(--part);stroke:var(--nvlink)}
.picture-narrow{display:none;max-width:30rem}
footer{margin-top:2.5rem;font-size:.88rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.3rem 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
[hidden]{display:none!important}
@media screen and (max-width:760px){
.picture-wide{display:none}.picture-narrow{display:block}
.stack thead{display:none}
.stack tr{display:grid;grid-template-columns:auto 1fr;gap:.1rem .7rem;align-items:baseline;padding:.4rem 0;
border-bottom:1px solid var(--line)}
.stack th,.stack td{border:0;padding:0}
.stack .version{text-align:right}
.stack .said{grid-column:1/-1}
.stack td:empty{display:none}
.stack.four tr{grid-template-columns:auto 1fr auto}
.facts .about{display:none}
.facts th{white-space:normal;width:45%}
.facts td{min-width:0}
}
@media print{
:root{--paper:#fff;--ink:#000}
body{max-width:none;padding:0;font-size:10pt}
input[type=search],details:not([open]){display:none!important}
tr,figure,.copy,.warnings li{break-inside:avoid}
h2,h3,summary{break-after:avoid}
a{color:inherit}
}
""".strip()

SCRIPT = """
(() => {
const box = document.querySelector("input[type=search]");
const rows = [...document.querySelectorAll("[data-filter]")];
box.hidden = false;
const filter = () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
};
box.addEventListener("input", filter);
filter();
const show = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = target && target.closest("details");
  if (details) { details.hidden = false; details.open = true; target.scrollIntoView(); }
};
window.addEventListener("hashchange", show);
show();
})();
""".strip()
