// Draws the figures that the page holds. It computes none: what is chosen is a key, and each key has its figure.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, set = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), set);
    node.append(...children);
    return node;
  };
  const state = {kind: null, method: null, band: "all", category: null, request: null};
  const unpacked = new Map();
  let index;
  // The promise of the library that draws: what is chosen can be, before it is there.
  let library;

  // A function for each byte would take a tenth of a second for the library that draws.
  const fromBase64 = (text) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const binary = atob(text), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  };
  // Base64 and gzip, as the page holds its parts.
  const inflated = (id) => {
    const packed = new Blob([fromBase64($("data-" + id).textContent)]).stream();
    return new Response(packed.pipeThrough(new DecompressionStream("gzip")), {headers: {"content-type": "text/javascript"}});
  };
  const unpack = (id) => {
    if (!unpacked.has(id)) unpacked.set(id, inflated(id).text());
    return unpacked.get(id);
  };
  const read = async (id) => JSON.parse(await unpack(id));
  // A script with an address of its own is compiled beside everything else; as text in the page it would hold it up.
  const load = async (id) => {
    const src = URL.createObjectURL(await inflated(id).blob());
    await new Promise((loaded, failed) => document.head.append(make("script", {src, onload: loaded, onerror: () => failed(new Error("a script did not load"))})));
    URL.revokeObjectURL(src);
  };

  // A kind of A may be compared with another one of B.
  const kindOn = (side) => (side === 1 && index.pairs[state.kind]) || state.kind;
  const sides = () => index.groups.map((groups, side) => ({
    side, groups,
    group: groups.find((g) => g.kind === kindOn(side) && (g.method ?? null) === state.method),
  }));
  const kinds = () => {
    const paired = new Set(Object.entries(index.pairs).filter(([a, b]) => a !== b).map(([, b]) => b));
    const of = (side) => index.groups[side].map((g) => g.kind).filter((kind) => side === 0 || !paired.has(kind));
    return [...new Set(index.groups.flatMap((_, side) => of(side)))];
  };
  const methodsOn = () => index.groups.flatMap((groups, side) => groups.filter((g) => g.kind === kindOn(side) && g.method !== null));

  // ---- how figures look, which is the page's and not theirs
  // On paper: black on white whatever the screen has, and as wide as a sheet.
  const PAPER = {"--fore": "#000", "--card": "#fff", "--line": "#bbb", "--grid": "#ddd"};
  const PAPER_WIDTH = 660;
  let isPrinted = false;
  const color = (name) => isPrinted ? PAPER[name] : getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isNarrow = () => !isPrinted && window.innerWidth < 600;
  const HEIGHTS = {latency: 380, breakdown: 380, requests: 360, overtime: 300, shift: 340, waterfall: 380};
  const height = (name, figure) => {
    const rows = figure.layout.meta?.rows;
    if (rows === undefined) return HEIGHTS[name] ?? 320;
    const row = {methods: 44, timeline: 46, tree: 36, cpu: 30}[name] ?? 34;
    return Math.max(rows * row + 80, 140);
  };

  // Room below the axes of figures whose labels are known to be short: looking for it takes plotly nearly half of the time.
  const BELOW = {latency: 50, breakdown: 62, requests: 50, overtime: 50};

  const dressed = (name, figure) => {
    const isFixed = name in BELOW && !isNarrow();
    const data = figure.data.map((trace) => {
      const category = trace.meta?.category;
      const faint = state.category !== null && category !== undefined && category !== state.category;
      return faint ? {...trace, opacity: 0.13} : trace;
    });
    const axis = (of) => ({
      ...of, gridcolor: color("--grid"), linecolor: color("--line"), zerolinecolor: color("--line"),
      title: {...of.title, font: {size: 12}, standoff: 8}, tickfont: {size: isNarrow() ? 10 : 11}, automargin: !isFixed,
    });
    const layout = {
      ...figure.layout, height: height(name, figure), autosize: true,
      margin: {l: isNarrow() ? 44 : isFixed ? 72 : 56, r: 12, t: figure.layout.title ? 36 : 18, b: isFixed ? BELOW[name] : 44, pad: 2},
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {family: "system-ui, 'DejaVu Sans', sans-serif", size: 12, color: color("--fore")},
      hoverlabel: {align: "left", bgcolor: color("--card"), bordercolor: color("--line"), font: {color: color("--fore"), size: 12}},
      dragmode: isNarrow() ? false : "zoom",
    };
    if (isPrinted) Object.assign(layout, {autosize: false, width: PAPER_WIDTH});
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(name)) layout[name] = axis(layout[name]);
      // Room for every other one.
      const ticks = layout[name]?.tickvals;
      if (/^xaxis/.test(name) && isNarrow() && ticks?.length > 4) {
        const kept = (_, i) => i % 2 === 0;
        layout[name] = {...layout[name], tickvals: ticks.filter(kept), ticktext: layout[name].ticktext.filter(kept)};
      }
    }
    return {data, layout};
  };
  const config = () => ({
    responsive: true, displaylogo: false, displayModeBar: false, typesetMath: false,
  });

  const draw = async (div, name, figure) => {
    div.style.minHeight = "";
    div.classList.toggle("empty", !figure);
    if (!figure || figure.data.length === 0) {
      if (div.data) Plotly.purge(div);
      div.classList.add("empty");
      div.textContent = figure?.layout?.meta?.note || "Nothing to show.";
      div._note = "";
      return;
    }
    if (div.classList.contains("empty") || !div.data) div.textContent = "";
    div.classList.remove("empty");
    const {data, layout} = dressed(name, figure);
    await Plotly.react(div, data, layout, config());
    div._note = figure.layout.meta?.note ?? "";
    if (name === "requests") {
      div.removeAllListeners("plotly_click");
      div.on("plotly_click", (event) => {
        const point = event.points[0];
        choose({request: [Number(div.dataset.side), ...point.customdata].join(":"), told: point.hovertext}, true);
      });
    }
  };

  // Sides are compared at a glance only on the same axes.
  const SHARED = {latency: ["xaxis"], requests: ["yaxis"], breakdown: [], overtime: []};
  const onOneScale = (name, figures) => {
    for (const axis of SHARED[name] ?? []) {
      const ranges = figures.filter((f) => f?.data.length).map((f) => f.layout[axis].range);
      if (ranges.length < 2) continue;
      const range = [Math.min(...ranges.map((r) => r[0])), Math.max(...ranges.map((r) => r[1]))];
      const widest = figures.filter((f) => f?.data.length).map((f) => f.layout[axis]);
      const powers = range[1] - range[0] > 2;
      const all = widest.flatMap((a) => a.tickvals.map((v, i) => [v, a.ticktext[i]]));
      const ticks = new Map(all.filter(([v]) => !powers || Number.isInteger(Math.log10(v))));
      for (const figure of figures.filter((f) => f?.data.length)) {
        figure.layout = {...figure.layout, [axis]: {...figure.layout[axis], range, tickvals: [...ticks.keys()], ticktext: [...ticks.values()]}};
      }
    }
    return figures;
  };

  const NAMES = [...document.querySelectorAll("#figures > .card")].map((card) => card.id.replace("card-", ""));
  const seen = new Set();
  let turn = 0;

  // The figure of one side for what is chosen, and what to say where there is none.
  const figureOf = async (name, {group}) => {
    if (!group) return [null, "This side has no such requests."];
    if (group.chunk === null) return [null, "No room for it in this page: see rpcprobe figure."];
    const band = group.bands.some((b) => b.name === state.band) ? state.band : "all";
    if (name === "latency" && state.category !== null) {
      if (group.categoriesChunk !== null) {
        const figures = (await read(group.categoriesChunk))[name];
        const figure = figures[band + "|" + state.category];
        return [figure ?? null, figure ? "Time in " + state.category : "No request has any " + state.category + "."];
      }
      const figure = (await read(group.chunk))[name][band];
      return [figure, "The whole latency: there was no room for each category."];
    }
    const figures = (await read(group.chunk))[name];
    return [figures[band] ?? figures.all ?? null, ""];
  };

  const drawCard = async (name, mine) => {
    const card = $("card-" + name);
    const all = await Promise.all(sides().map((side) => figureOf(name, side)));
    if (mine !== turn) return;
    const figures = onOneScale(name, all.map(([figure]) => figure && {...figure}));
    const notes = [];
    for (const [side, figure] of figures.entries()) {
      const div = $(`plot-${name}-${side}`);
      div.dataset.side = side;
      if (index.sides[side].name && figure) {
        figure.layout = {...figure.layout, title: {text: index.sides[side].name, x: 0.02, font: {size: 13}}};
      }
      await draw(div, name, figure);
      if (!figure) div.textContent = all[side][1];
      notes.push(...[figure ? all[side][1] : "", div._note].filter(Boolean));
    }
    card.querySelector(".note").textContent = [...new Set(notes)].join(" ");
  };

  const drawCompared = async (mine) => {
    if (index.compared === null || index.compared === undefined) return;
    const of = (await read(index.compared))[state.kind];
    for (const name of ["waterfall", "shift"]) {
      const card = $("card-" + name);
      card.hidden = !of?.[name];
      if (!of?.[name] || mine !== turn) continue;
      await draw($(`plot-${name}-0`), name, of[name]);
      card.querySelector(".note").textContent = of[name].layout.meta?.note ?? "";
    }
  };

  // Only what is in sight is drawn at once.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const name = entry.target.id.replace("card-", "");
      if (entry.isIntersecting && name === "timeline" && !seen.has(name)) {
        seen.add(name);
        drawRequest();
      } else if (entry.isIntersecting && !seen.has(name)) {
        seen.add(name);
        drawCard(name, turn);
      }
    }
  }, {rootMargin: "300px"});

  const drawAll = async () => {
    const mine = ++turn;
    $("card-methods").hidden = methodsOn().length === 0;
    await library;
    await drawCompared(mine);
    for (const name of NAMES) if (seen.has(name)) await drawCard(name, mine);
    if (mine === turn) document.documentElement.dataset.drawn = String(mine);
  };

  // ---- one request
  let asked = 0;
  // Where the page has the request that is chosen.
  const held = () => {
    const [side, ...id] = (state.request ?? "0").split(":");
    const name = id.join(":");
    const requests = index.requests[Number(side)];
    return {side, id, name, requests, chunk: requests?.chunks[name]};
  };
  const drawRequest = async () => {
    const mine = ++asked;
    await library;
    const {side, id, name, requests, chunk} = held();
    const plot = $("plot-timeline");
    if (chunk === undefined) {
      Plotly.purge(plot);
      plot.textContent = "";
      const dir = index.sides[Number(side)]?.directories[Number(id[0])] ?? "DIR";
      $("which").textContent = state.request ? "request " + id[1] : "No request is chosen";
      $("facts").textContent = state.request
        ? (state.told ?? "").replace(/<br>/g, " · ").replace(/<\/?b>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&")
        : "";
      $("note-timeline").textContent = state.request
        ? `Its segments are not in this page, which has those of ${Object.keys(requests.chunks).length} requests: rpcprobe explain ${dir} ${id[1]}` : "";
      $("pieces").hidden = true;
      return;
    }
    const {heading, facts, figure} = (await read(chunk))[name];
    // Another one was chosen meanwhile.
    if (mine !== asked) return;
    const of = index.sides.length > 1 ? index.sides[Number(side)].name + ": " : "";
    $("which").textContent = of + heading;
    $("facts").textContent = facts;
    pieces(figure);
    await draw(plot, "timeline", figure);
    if (mine !== asked) return;
    $("note-timeline").textContent = [
      figure.layout.meta.note, "The line is the critical path. Hatched: modelled; dotted: sampled; plain: measured.",
    ].filter(Boolean).join(" ");
  };

  // What hovering tells, for keyboards and phones.
  const pieces = (figure) => {
    const rows = [];
    for (const trace of figure.data) {
      (trace.hovertext ?? []).forEach((told, i) => rows.push({at: trace.base[i], color: trace.marker.color, told, category: trace.meta.category}));
    }
    rows.sort((a, b) => a.at - b.at);
    const text = (html) => html.replace(/<\/?b>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
    const table = make("table", {}, make("tr", {}, ...["category", "where and when", "more"].map((t) => make("th", {textContent: t, scope: "col"}))));
    for (const {color, told, category} of rows) {
      const [first, second, ...rest] = told.split("<br>").map(text);
      const swatch = make("i");
      swatch.style.background = color;
      const row = make("tr", {}, make("th", {scope: "row"}, swatch, first), make("td", {textContent: second}), make("td", {textContent: rest.join(" · ")}));
      row.dataset.category = category;
      table.append(row);
    }
    $("pieces").hidden = false;
    $("pieces").querySelector(".scroll").replaceChildren(table);
  };

  const listRequests = () => {
    const list = [];
    for (const {side, group} of sides()) {
      if (!group) continue;
      const short = index.requests[side].short;
      for (const [what, ids] of [["slowest", group.slowest], ["typical", group.typical]]) {
        const of = index.sides.length > 1 ? index.sides[side].name + ", " : "";
        if (ids.length === 0) continue;
        list.push(make("span", {className: "what", textContent: `${of}${what}`}));
        for (const id of ids.map((id) => id.join(":"))) {
          const [latency, method, tint] = short[id] ?? ["", null, null];
          const swatch = make("i");
          if (tint) swatch.style.background = tint;
          const key = side + ":" + id;
          const button = make("button", {type: "button", title: method ?? ""}, swatch, latency + (method && !state.method ? " " + method : ""));
          button.dataset.request = key;
          button.setAttribute("aria-pressed", String(state.request === key));
          button.onclick = () => choose({request: key});
          list.push(button);
        }
      }
    }
    $("requests").replaceChildren(...list);
  };

  // ---- what is chosen
  const controls = () => {
    const first = sides().find((side) => side.group)?.group;
    const of = (kind) => index.groups.map((groups, side) => {
      const own = (side === 1 && index.pairs[kind]) || kind;
      const count = (groups.find((g) => g.kind === own && g.method === null)?.requests ?? 0).toLocaleString("en");
      return own === kind ? count : `${own} ${count}`;
    });
    const select = (label, options, value, set) => {
      const node = make("select", {id: "choose-" + label});
      for (const [key, shown] of options) node.append(make("option", {value: key, textContent: shown, selected: key === value}));
      node.onchange = () => set(node.value);
      return make("label", {}, label, node);
    };
    const parts = [];
    parts.push(select("kind", kinds().map((k) => [k, `${k} (${of(k).join(" | ")})`]), state.kind,
      (kind) => choose({kind, method: null, band: "all", category: null, request: null})));
    const methods = [...new Set(methodsOn().map((g) => g.method))];
    if (methods.length) {
      parts.push(select("method", [["", "all methods"], ...methods.map((m) => ["=" + m, m])], state.method === null ? "" : "=" + state.method,
        (m) => choose({method: m === "" ? null : m.slice(1), request: null})));
    }
    const press = (name, chosen, set, ...children) => {
      const node = make("button", {type: "button"}, ...children);
      node.setAttribute("aria-pressed", String(chosen));
      node.dataset.choose = name;
      node.onclick = () => set();
      return node;
    };
    const bands = index.bands.filter((b) => sides().some(({group}) => group?.bands.some((of) => of.name === b.name)));
    if (bands.length > 1) {
      const set = make("fieldset", {}, make("span", {className: "what", textContent: "requests"}));
      for (const band of bands) {
        const node = press("band-" + band.name, state.band === band.name, () => choose({band: band.name}), band.shown);
        node.title = first?.bands.find((b) => b.name === band.name)?.note ?? "";
        set.append(node);
      }
      parts.push(set);
    }
    const categories = new Map();
    for (const {group} of sides()) for (const c of group?.categories ?? []) if (!categories.has(c.name)) categories.set(c.name, c);
    const set = make("fieldset", {className: "categories"});
    for (const category of categories.values()) {
      const swatch = make("i");
      swatch.style.background = category.color;
      const chosen = state.category === category.name;
      const share = index.sides.length > 1 ? "" : " " + category.share;
      set.append(press("category-" + category.name, chosen, () => choose({category: chosen ? null : category.name}), swatch, category.shown + share));
    }
    parts.push(set);
    const held = document.activeElement?.dataset?.choose ?? document.activeElement?.id;
    $("controls").replaceChildren(...parts);
    const band = bands.find((b) => b.name === state.band)?.shown ?? "all";
    $("controls").dataset.chosen = [
      "Shown: " + state.kind, state.method ?? (methods.length ? "all methods" : null),
      band === "all" ? "all requests" : "requests of " + band, state.category,
    ].filter(Boolean).join(", ");
    if (held) ($("controls").querySelector(`[data-choose="${CSS.escape(held)}"]`) ?? (held && $(held)))?.focus?.();
  };

  const fromHash = () => {
    const told = new URLSearchParams(location.hash.slice(1));
    state.kind = kinds().includes(told.get("kind")) ? told.get("kind") : kinds()[0];
    const method = told.get("method");
    state.method = methodsOn().some((g) => g.method === method) ? method : null;
    state.band = index.bands.some((b) => b.name === told.get("band")) ? told.get("band") : "all";
    state.category = told.get("category");
    state.request = told.get("request");
  };
  const firstRequest = () => {
    const {side, group} = sides().find((s) => s.group) ?? {};
    const id = group?.slowest[0] ?? group?.typical[0];
    return id ? side + ":" + id.join(":") : null;
  };

  const choose = async (change, show = false) => {
    Object.assign(state, {told: null}, change);
    state.request ??= firstRequest();
    const told = new URLSearchParams();
    for (const key of ["kind", "method", "band", "category", "request"]) if (state[key]) told.set(key, state[key]);
    history.replaceState(null, "", "#" + told);
    controls();
    listRequests();
    const onlyRequest = Object.keys(change).every((key) => key === "request" || key === "told");
    if (change.request) seen.add("timeline");
    await Promise.all([onlyRequest && index.drawn ? null : drawAll(), seen.has("timeline") ? drawRequest() : null]);
    index.drawn = true;
    if (show) $("timeline").scrollIntoView({behavior: "smooth", block: "start"});
    document.documentElement.dataset.request = state.request ?? "";
  };

  const redraw = () => Promise.all([drawAll(), seen.has("timeline") ? drawRequest() : null]);
  const theme = () => {
    const button = $("theme");
    const isDark = () => document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.hidden = false;
    name();
    button.onclick = () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; name(); redraw(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
  };

  // What is out of sight, when there is nothing else to do: who scrolls fast, or takes a picture of the page, finds it drawn.
  const whileIdle = async () => {
    for (const name of [...NAMES, "timeline"]) {
      await new Promise((done) => (window.requestIdleCallback ?? setTimeout)(done));
      if (seen.has(name) || $("card-" + name)?.hidden) continue;
      seen.add(name);
      await (name === "timeline" ? drawRequest() : drawCard(name, turn));
    }
  };

  const begin = async () => {
    if (!$("controls")) return;
    library = load("plotly");
    index = await read("index");
    document.documentElement.classList.toggle("two", index.sides.length > 1);
    for (const id of ["controls", "figures", "compared", "timeline"]) if ($(id)) $(id).hidden = false;
    $("controls").onsubmit = (event) => event.preventDefault();
    $("tables").open = false;
    theme();
    fromHash();
    await choose({});
    // Those in sight are drawn first; for the others there is room.
    const plots = NAMES.flatMap((name) => [...$("card-" + name).querySelectorAll(".plot")].map((div) => [name, div]));
    for (const [name, div] of plots) div.style.minHeight = (HEIGHTS[name] ?? 240) + "px";
    const inSight = (node) => { const {top, bottom} = node.getBoundingClientRect(); return bottom > 0 && top < innerHeight; };
    for (const name of NAMES.filter((name) => inSight($("card-" + name).querySelector(".plots")))) {
      seen.add(name);
      await drawCard(name, turn);
    }
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
    for (const name of NAMES) watcher.observe($("card-" + name));
    watcher.observe($("timeline"));
    addEventListener("hashchange", () => { fromHash(); choose({}); });
    whileIdle();
    // Browsers print what is there when this returns and its promises are kept: nothing may have to be unpacked then.
    const wasOpen = {};
    const printed = (is) => {
      isPrinted = is;
      if (is) wasOpen.tables = $("tables").open;
      $("tables").open = is || wasOpen.tables;
      [...NAMES, "timeline"].forEach((name) => seen.add(name));
      redraw();
    };
    addEventListener("beforeprint", () => printed(true));
    addEventListener("afterprint", () => printed(false));
  };
  begin().catch((error) => {
    const failed = $("failed");
    if (failed) {
      failed.hidden = false;
      failed.textContent = "The figures cannot be shown (" + error.message + "). Everything is in the tables below.";
    }
    for (const id of ["controls", "figures", "compared", "timeline"]) if ($(id)) $(id).hidden = true;
    $("tables").open = true;
    console.error(error);
  });
})();
