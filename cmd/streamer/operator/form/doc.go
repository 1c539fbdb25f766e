// Package form is what operators' commands have in common: flags, how they are refused, ask and print.
package form
