// Package supervisortest is the suite of [supervisor.Store].
package supervisortest
