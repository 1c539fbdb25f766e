// Package mongodb is the connection to a MongoDB deployment: what it is, what its errors ask for. Everything that touches the
// MongoDB driver is here and below: stream reads the log, mark keeps marks. No driver type leaves this tree.
package mongodb
