"use strict";
// The token goes to the service once and is forgotten; what stays is a cookie that scripts cannot read.
const form = document.getElementById("sign-in");
const field = document.getElementById("token");
const problem = document.getElementById("problem");

form.addEventListener("submit", async event => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    const answer = await fetch("/dashboard/session", {
      method: "POST",
      headers: {"Content-Type": "application/json", "X-Sidelight-Dashboard": "1"},
      body: JSON.stringify({token: field.value}),
    });
    if (answer.ok) {
      field.value = "";
      location.replace("/");
      return;
    }
    problem.textContent = answer.status === 401
      ? "This token is not valid: it is unknown, or it was revoked."
      : (await answer.json()).detail;
  } catch {
    problem.textContent = "The service does not answer.";
  }
  button.disabled = false;
  field.setAttribute("aria-invalid", "true");
  field.focus();
  field.select();
});
field.focus();

// A link on another site's page brings no cookie along, by design; a request from here does.
fetch("/dashboard/session").then(answer => answer.json()).then(session => {
  if (session.may_watch) location.replace("/");
}).catch(() => { /* then there is the form */ });
