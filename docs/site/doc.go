// The program site renders the Markdown of the repository as a site: every page, with the
// navigation of docs/index.md. Links to other files lead to the repository. A link that leads
// nowhere, and a page that nothing leads to, are errors.
package main
