// Package decimal is the exact arithmetic of Decimal128 that KeyStrings need: conversion to and from doubles with a
// chosen rounding, and numbers with 34 digits.
package decimal
