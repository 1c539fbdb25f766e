package s3

import (
	"errors"
	"os"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// errNoCredentials says that nobody has credentials for the store.
var errNoCredentials = errors.New("no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor a file (AWS_SHARED_CREDENTIALS_FILE), nor a role of the machine")

// newCredentials returns the credentials of the environment, of a file, which is read for each
// request, or of the machine's role: as AWS's own programs look for them.
func newCredentials(region string) *credentials.Credentials {
	chain := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		chain = append(chain, &credentials.IAM{Region: region})
	}
	return credentials.New(&provider{Chain: &credentials.Chain{Providers: chain}})
}

// A provider asks the providers of its chain in turn. One must have credentials: no request is
// anonymous.
type provider struct{ *credentials.Chain }

// RetrieveWithCredContext implements credentials.Provider.
func (p *provider) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	value, err := p.Chain.RetrieveWithCredContext(cc)
	if err == nil && value.SignerType == credentials.SignatureAnonymous {
		return value, errNoCredentials
	}
	return value, err
}
