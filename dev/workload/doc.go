// Package workload writes documents to MongoDB through the real driver and knows what a subscriber
// must see of them: it is what the demo, the benchmark and the crash tests measure by.
//
// Every document lives once: it is inserted, updated a few times, and deleted, and each of these
// changes has the next number. A [Ledger] keeps how many changes of each document were
// acknowledged; a [Check] takes what arrives and tells what is missing, out of order, or there
// twice.
package workload
