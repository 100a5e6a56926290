"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const modes = {
    shadow: "the old policy acts, the learner only says what it would do",
    assist: "the learner proposes, a person confirms",
    act: "the learner decides its share of the traffic",
  };
  const shown = new Map();
  let rails = null;       // who acts, as the service last said
  let edited = false;     // the reader has changed the form since
  let stream = null;
  let retry = 0;

  // ------------------------------------------------------------------------------------- the stream

  function address(path) {
    const asked = new URLSearchParams({
      span: document.querySelector("input[name=span]:checked").value,
      arms: document.querySelector("input[name=arms]:checked").value,
      feature: $("feature").value,
    });
    return `${path}?${asked}`;
  }

  function open() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = new EventSource(address("/dashboard/events"));
    stream.onmessage = message => { say("live", "live"); update(JSON.parse(message.data)); };
    stream.onerror = () => {
      // Streams end every few seconds and the browser opens the next by itself; only a refusal closes them for good.
      if (stream.readyState === EventSource.CLOSED) again();
      else later();
    };
  }

  // Words only after a while: a new stream takes a fraction of a second.
  let silence = 0;
  function later() {
    if (!silence) silence = setTimeout(() => say("lost", "no connection, trying again"), 3000);
  }

  function hush() {
    clearTimeout(silence);
    silence = 0;
  }

  async function again() {
    later();
    try {
      const answer = await fetch("/dashboard/session");
      if (answer.ok && !(await answer.json()).may_watch) { location.reload(); return; }
    } catch { /* the service is away; try again below */ }
    retry = setTimeout(open, 2000);
  }

  function say(state, words) {
    if (state === "live") hush();
    if ($("live").dataset.live === state) return;
    $("live").dataset.live = state;
    $("live-words").textContent = words;
  }

  function update(parts) {
    for (const [name, content] of Object.entries(parts)) {
      if (name === "state") { follow(content); continue; }
      const place = $(`part-${name}`);
      if (!place || shown.get(name) === content) continue;
      shown.set(name, content);
      place.innerHTML = content;
      localise(place);
    }
    document.documentElement.dataset.updates = Number(document.documentElement.dataset.updates || 0) + 1;
  }

  const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
  const day = new Intl.DateTimeFormat(undefined, {day: "numeric", month: "short"});
  function localise(place) {
    for (const time of place.querySelectorAll("time")) {
      const then = new Date(time.dateTime);
      const today = then.toDateString() === new Date().toDateString();
      time.textContent = today ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
    }
  }

  for (const control of document.querySelectorAll("input[name=span], input[name=arms], #feature")) {
    control.addEventListener("change", () => { open(); everyArm(); });
  }
  // A page that nobody sees needs no stream.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(retry); hush(); stream.close(); } else open();
  });

  // ------------------------------------------------------------------------------------- all arms

  const details = $("every-arm");
  async function everyArm() {
    if (!details || !details.open || document.hidden) return;
    const answer = await fetch(address("/dashboard/arms"));
    if (!answer.ok) return;
    const content = await answer.text();
    if (shown.get("every-arm") !== content) {
      shown.set("every-arm", content);
      $("part-every-arm").innerHTML = content;
    }
    find();
  }
  function find() {
    const wanted = $("find-arm").value.trim().toLowerCase();
    for (const row of $("part-every-arm").querySelectorAll("tbody tr")) {
      row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(wanted);
    }
  }
  if (details) {
    details.addEventListener("toggle", everyArm);
    $("find-arm").addEventListener("input", find);
    setInterval(everyArm, 5000);
  }

  // ------------------------------------------------------------------------------------- who acts

  const form = $("rails");

  function percent(share) {
    return `${+(100 * share).toPrecision(4)} %`;
  }

  function follow(state) {
    const before = rails;
    rails = state;
    $("mode-now").textContent = state.killed ? "stopped" : state.mode;
    $("mode-now").dataset.mode = state.killed ? "killed" : state.mode;
    $("ramp-now").textContent = state.killed
      ? `the fallback ${label(state.fallback)} acts`
      : state.mode === "act" ? `${percent(state.share)} of the traffic` : "";
    $("mode-means").textContent = state.killed ? "the kill switch is on" : modes[state.mode];
    if (!form) return;
    $("kill").textContent = state.killed ? "Let the learner decide again…" : "Stop the learner…";
    $("kill").classList.toggle("danger", !state.killed);
    if (!edited || before === null) fill();
    check();
  }

  function label(arm) {
    return `“${typeof arm === "object" && arm !== null ? Object.values(arm)[0] : arm}”`;
  }

  function fill() {
    form.elements.mode.value = rails.mode;
    $("share").value = +(100 * rails.share).toPrecision(12);
    edited = false;
  }

  function wanted() {
    return {mode: form.elements.mode.value, share: Number($("share").value) / 100};
  }

  function check() {
    const now = wanted();
    edited = now.mode !== rails.mode || Math.abs(now.share - rails.share) > 1e-9;
    $("apply").disabled = !edited;
  }

  async function send(path, body) {
    const answer = await fetch(path, {
      method: "POST",
      headers: {"Content-Type": "application/json", "X-Sidelight-Dashboard": "1"},
      body: JSON.stringify(body),
    });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.detail);
    edited = false;
    follow({...rails, ...said.rails});
  }

  if (form) {
    form.addEventListener("input", check);
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (!form.reportValidity()) return;
      const {mode, share} = wanted();
      const body = {};
      if (mode !== rails.mode) body.mode = mode;
      if (Math.abs(share - rails.share) > 1e-9) body.share = share;
      const title = body.mode ? `Switch from ${rails.mode} to ${mode}?` : `Change the ramp to ${percent(share)}?`;
      const words = `From the next decision on ${modes[mode]}`
        + (mode === "act" ? `: ${percent(share)}. ` : ". ")
        + (rails.killed ? "The kill switch stays on. " : "") + "The change is written to the event log.";
      confirm(title, words, body.mode ? `Switch to ${mode}` : "Change the ramp", false,
        () => send("/v1/mode", body), body.mode ? `Switched to ${mode}.` : `The ramp is ${percent(share)}.`);
    });
    $("kill").addEventListener("click", () => {
      const killed = !rails.killed;
      if (killed) {
        confirm("Stop the learner?",
          `At once, in every mode: where the old policy does not say its arm, the fallback ${label(rails.fallback)} acts. `
          + "The learner goes on learning.",
          "Stop the learner", true, () => send("/v1/kill", {killed}), "The learner is stopped.");
      } else {
        confirm("Let the learner decide again?", `In ${rails.mode} mode, ${modes[rails.mode]}.`,
          "Let it decide", false, () => send("/v1/kill", {killed}), "The learner decides again.");
      }
    });
  }

  // --------------------------------------------------------------------------------------- the gate

  const steps = {
    "gate-up": ["Go one rung up?", "The learner gets the next larger share of its ladder, with fresh evidence. "
      + "The step is written to the event log with the evidence so far.", "Go up", {step: "up"}, "One rung up."],
    "gate-down": ["Go one rung down?", "The learner gets the next smaller share, with fresh evidence.", "Go down",
      {step: "down"}, "One rung down."],
    "gate-hold": ["Hold promotions?", "No step up is taken until promotions go on; steps down are.", "Hold",
      {hold: true}, "Promotions are held."],
    "gate-free": ["Let promotions go on?", "Steps up are taken again where the evidence calls for them.", "Go on",
      {hold: false}, "Promotions go on."],
  };
  for (const [name, [title, words, yes, body, done]] of Object.entries(steps)) {
    const button = $(name);
    if (button) button.addEventListener("click",
      () => {
        const seen = $("gate-rung"), from = seen && body.step ? {rung: Number(seen.value)} : {};
        confirm(title, words, yes, name === "gate-up", () => send("/v1/gate", {...body, ...from}), done);
      });
  }

  // ----------------------------------------------------------------------------------- confirmation

  const dialog = $("confirm");
  let agreed = null;

  function confirm(title, words, yes, grave, act, done) {
    $("confirm-title").textContent = title;
    $("confirm-words").textContent = words;
    $("confirm-problem").textContent = "";
    $("confirm-yes").textContent = yes;
    $("confirm-yes").className = grave ? "danger" : "strong";
    $("confirm-yes").disabled = false;
    agreed = async () => {
      $("confirm-yes").disabled = true;
      try {
        await act();
        dialog.close();
        $("done").textContent = done;
      } catch (error) {
        $("confirm-problem").textContent = error.message;
        $("confirm-yes").disabled = false;
      }
    };
    dialog.showModal();
    // whoever presses Enter without reading changes nothing
    $("confirm-no").focus();
  }
  $("confirm-yes").addEventListener("click", () => agreed());
  $("confirm-no").addEventListener("click", () => dialog.close());

  // ----------------------------------------------------------------------------------------- the end

  const out = $("sign-out");
  if (out) out.addEventListener("click", async () => {
    if (stream) stream.close();
    await fetch("/dashboard/session", {method: "DELETE", headers: {"X-Sidelight-Dashboard": "1"}});
    location.replace("/");
  });

  open();
})();
