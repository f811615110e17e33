import { render } from "preact";
import { App } from "./app";
import { loadWhoAmI } from "./live/whoami";
import { listen } from "./router";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/pages.css";
import { apply } from "./theme";

apply();
listen();
loadWhoAmI();
const root = document.getElementById("app");
if (root) render(<App />, root);
