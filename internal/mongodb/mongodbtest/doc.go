// Package mongodbtest connects tests to a MongoDB deployment.
package mongodbtest
