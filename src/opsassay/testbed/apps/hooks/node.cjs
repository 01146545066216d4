// Instruments a program of Node before it starts: the loader hook covers ES modules, register.js CommonJS.
// OPENTELEMETRY_MODULES is the folder node_modules that holds @opentelemetry.
const modules = process.env.OPENTELEMETRY_MODULES;
require("node:module").register(`file://${modules}/@opentelemetry/instrumentation/hook.mjs`);
require(`${modules}/@opentelemetry/auto-instrumentations-node/build/src/register.js`);
