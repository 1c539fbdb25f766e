// Package posting has the containers of the subscription index: a [Table] from keys, [Ranges] of values, a [List].
//
// Each has one writer at a time and any number of readers, who never wait: what a reader has loaded never changes under it. A reader that
// runs beside a writer sees the container from before or from after the change. Writers are serialized by who owns the container.
package posting
