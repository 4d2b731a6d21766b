package sealing

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// SignJWT returns claims as a JSON Web Token (RFC 7519) that is signed with RS256, by which the holder of a key proves itself. keyID names
// the key to its reader; empty for none. The error may say something of the key: it is not for users.
func SignJWT(key *rsa.PrivateKey, keyID string, claims map[string]any) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		Type      string `json:"typ"`
		KeyID     string `json:"kid,omitempty"`
	}{"RS256", "JWT", keyID})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode(header) + "." + encode(body)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	return signed + "." + encode(signature), err
}
