// Package workload writes the orders and customers of a shop to MongoDB through the real driver and
// knows which changes a subscriber must get. The demo and the crash tests use it as their measure.
//
// Every document lives once: an order is placed, paid, packed, shipped and delivered, changed now
// and then, and deleted at the end. Each of these changes has the next number, which the document
// has as rev. A [Ledger] keeps how many changes of each document were acknowledged, and when each
// was sent; a [Check] takes arriving changes and reports those that are missing, out of order, or
// duplicate.
package workload
