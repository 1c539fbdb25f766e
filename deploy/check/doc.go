// Package check holds what deploy/ contains against the tools and types that it is for: Helm's
// library, Kubernetes' types, the Compose specification, Prometheus' parser. It is a module of its
// own, so that none of these is a dependency of the service. Its tests run with make deploy-check.
package check
