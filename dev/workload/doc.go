// Package workload writes the orders and customers of a shop to MongoDB through the real driver and
// knows what a subscriber must see of them: it is what the demo and the crash tests measure by.
//
// Every document lives once: an order is placed, paid, packed, shipped and delivered, changed now and
// then, and deleted at the end. Each of these changes has the next number, which the document has as
// rev. A [Ledger] keeps how many changes of each document were acknowledged, and when each was sent;
// a [Check] takes what arrives and tells what is missing, out of order, or there twice.
package workload
