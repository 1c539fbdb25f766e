// Package profile says how a server behaves where servers differ: by release, by what stands before them, by what their users may do. It
// is plain data, which the rest of devmongo reads.
//
// A preset is a named change of a Profile. Every release is one, and so is what does not depend on the release; [Of] applies several in
// turn. To add a behaviour, add a field to [Profile] whose zero value is what a server on a quiet machine does, read it where the
// behaviour is, and set it in the presets that have it.
package profile
