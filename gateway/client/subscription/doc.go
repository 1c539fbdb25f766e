// Package subscription is what a program asks for.
package subscription
