// Package deliverytest has what tests of sessions share: subscriptions, events to write, and what
// was received of them.
package deliverytest
