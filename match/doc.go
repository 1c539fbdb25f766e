// Package match decides which events a subscriber wants.
//
// A [Selector] looks at an event's namespace and operation only; it decodes nothing and allocates nothing.
package match
