// Package notice is what the client tells a program besides changes. Which notice it is its type tells.
//
// Losses, [Resync] and [Rewound], come in their place between the changes of their partition, and wait until they are dealt with. All
// others tell how the service does and what became of subscriptions; nothing waits for them.
package notice
