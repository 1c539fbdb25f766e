package connect

import "github.com/redpanda-data/benthos/v4/public/service"

// NewBareInput makes an input without an engine and without its wrappers: a read has the context of
// its caller.
func NewBareInput(yaml string, env *service.Environment) (service.BatchInput, error) {
	conf, err := spec().ParseYAML(yaml, env)
	if err != nil {
		return nil, err
	}
	return bareInput(conf, service.MockResources())
}

// NewInput makes an input without an engine.
func NewInput(yaml string) (service.BatchInput, error) {
	conf, err := spec().ParseYAML(yaml, nil)
	if err != nil {
		return nil, err
	}
	return newInput(conf, service.MockResources())
}
