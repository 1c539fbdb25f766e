// The program site renders the Markdown of the repository as a site: every page, with the
// navigation of docs/index.md, its contents, the pages before and after it, code in colours, and
// rows that can be linked to. Links to other files lead to the repository. A link that leads
// nowhere, and a page that nothing leads to, are errors.
//
// The search index is a script beside the pages, so that the site needs no service and works from a
// folder, too. Pages are whole without scripts.
package main
