// Package statuspage serves the page at / that shows the state of a node and its cluster. Its
// scripts ask the node's own endpoints /v1/status, /v1/subscribers, /v1/sinks, /v1/reports,
// /v1/gaps, /v1/history, /v1/configuration, /v1/notices, /v1/events and /v1/changes, with the token
// that the reader enters where the node asks for one. What an operator may do (drains, handoffs,
// pauses, rewinds) goes through assets/operate.js: identities that may not operate see no button,
// and the node refuses them anyway.
//
// The page has no secrets, so anyone may load it. It needs nothing from other hosts. Its
// Content-Security-Policy allows only its own files, and no scripts or styles within the page.
//
// Each section of the page is a file in assets/sections, listed in assets/sections.js. It has an
// id, a title, and a function that builds its elements once and returns what updates them. Views
// have an address of their own, such as #/events or #/subscribers/NAME: files in assets/views,
// listed in assets/views.js. The live view, assets/views/events.js, is a client of /v1/events like
// any other; assets/tester.js has the node evaluate a filter, so that nothing evaluates filters but
// package match.
// assets/attention.js collects what needs a person, with the code of package fault whose remedy is
// shown.
package statuspage
