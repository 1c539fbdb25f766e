// Package tally keeps who fails again and again from saying so again and again: of what goes wrong it tells the first at once, and then once
// a second how often it did.
package tally
