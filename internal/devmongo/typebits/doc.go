// Package typebits packs what a KeyString loses: of every string one bit, of every number two or more, of a decimal
// the low six bits of its exponent. Bits are packed from low to high; all of them zero are no bytes at all.
package typebits
