package sigstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
)

// The annotations of a layer in the older tag scheme.
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationLog         = "dev.sigstore.cosign/bundle"
	annotationTimestamp   = "dev.sigstore.cosign/rfc3161timestamp"
)

// readTagged makes a bundle of a signature or attestation in the older tag scheme, which says the same in annotations.
func readTagged(a prove.Attached) (evidence, error) {
	material := &protobundle.VerificationMaterial{}
	if text := a.Annotations[annotationCertificate]; text != "" {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return evidence{}, fault.New(fault.Invalid, "found a certificate that is not PEM")
		}
		material.Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
			Certificates: []*protocommon.X509Certificate{{RawBytes: block.Bytes}},
		}}
	} else {
		material.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
	}
	if text := a.Annotations[annotationLog]; text != "" {
		entry, err := logEntry(text)
		if err != nil {
			return evidence{}, fault.Because(err, fault.Invalid, "found a log entry that cannot be read")
		}
		material.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if text := a.Annotations[annotationTimestamp]; text != "" {
		var stamp struct {
			SignedRFC3161Timestamp []byte
		}
		if err := json.Unmarshal([]byte(text), &stamp); err != nil {
			return evidence{}, fault.Because(err, fault.Invalid, "found a time stamp that cannot be read")
		}
		material.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp.SignedRFC3161Timestamp}},
		}
	}
	wire := &protobundle.Bundle{MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1", VerificationMaterial: material}
	var e evidence
	if a.MediaType == prove.MediaTypeEnvelope {
		envelope, err := readEnvelope(a.Content)
		if err != nil {
			return e, err
		}
		wire.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: envelope}
	} else {
		made, err := base64.StdEncoding.DecodeString(a.Annotations[annotationSignature])
		if err != nil || len(made) == 0 {
			return e, fault.New(fault.Invalid, "found no signature in the annotation %s", annotationSignature)
		}
		sum := sha256.Sum256(a.Content)
		e.payload = a.Content
		wire.Content = &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: made,
		}}
	}
	var err error
	if e.bundle, err = bundle.NewBundle(wire); err != nil {
		return e, fault.Because(err, fault.Invalid, "found a signature that cannot be read")
	}
	return e, nil
}

// readEnvelope reads a DSSE envelope.
func readEnvelope(content []byte) (*protodsse.Envelope, error) {
	var envelope struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			KeyID string `json:"keyid"`
			Sig   []byte `json:"sig"`
		} `json:"signatures"`
	}
	if err := json.Unmarshal(content, &envelope); err != nil {
		return nil, fault.Because(err, fault.Invalid, "found an envelope that cannot be read")
	}
	if len(envelope.Signatures) != 1 {
		return nil, fault.New(fault.Invalid, "found an envelope with %d signatures; expected 1", len(envelope.Signatures))
	}
	one := envelope.Signatures[0]
	return &protodsse.Envelope{
		PayloadType: envelope.PayloadType, Payload: envelope.Payload, Signatures: []*protodsse.Signature{{Sig: one.Sig, Keyid: one.KeyID}},
	}, nil
}

// logEntry reads what cosign notes of the entry of a transparency log.
func logEntry(text string) (*protorekor.TransparencyLogEntry, error) {
	var noted struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(text), &noted); err != nil {
		return nil, fmt.Errorf("read the annotation %s: %w", annotationLog, err)
	}
	id, err := hex.DecodeString(noted.Payload.LogID)
	if err != nil {
		return nil, fmt.Errorf("read the log's identifier: %w", err)
	}
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(noted.Payload.Body, &kind); err != nil {
		return nil, fmt.Errorf("read the body of the log entry: %w", err)
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: noted.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id}, IntegratedTime: noted.Payload.IntegratedTime,
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: noted.SignedEntryTimestamp},
		CanonicalizedBody: noted.Payload.Body,
	}, nil
}
