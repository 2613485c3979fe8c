(() => {
const box = document.querySelector("input[type=search]");
const rows = [...document.querySelectorAll("[data-filter]")];
box.hidden = false;
const filter = () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
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
